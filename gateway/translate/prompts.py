"""The four shapes of a raw prompt (text, texts, token ids, lists of token ids) to a list of prompts."""

from backends.types import Text, Tokens
from gateway.errors import InvalidRequest


def to_prompts(
    value: str | list[str | int | list[int]], param: str, *, limit: int, allow_empty: bool
) -> tuple[Text | Tokens, ...]:
    """Translate.

    Args:
        limit: how many prompts one request may carry.
        allow_empty: whether an empty text is a prompt (a model may start from nothing, an embedding may not).

    Raises:
        InvalidRequest: nothing is given, too much, or a mixture of shapes.
    """
    prompts = _shapes(value, param)
    if len(prompts) > limit:
        text = f"'{param}' has {len(prompts)} entries, the limit is {limit}."
        raise InvalidRequest(text, param=param, code="invalid_value")
    for index, prompt in enumerate(prompts):
        is_empty = not prompt.text and not allow_empty if isinstance(prompt, Text) else not prompt.ids
        if is_empty:
            where = param if len(prompts) == 1 else f"{param}[{index}]"
            raise InvalidRequest(f"'{where}' must not be empty.", param=where, code="invalid_value")
    return prompts


def _shapes(value: str | list[str | int | list[int]], param: str) -> tuple[Text | Tokens, ...]:
    if isinstance(value, str):
        return (Text(value),)
    if not value:
        raise InvalidRequest(f"'{param}' must not be empty.", param=param, code="invalid_value")
    ids = tuple(item for item in value if isinstance(item, int))
    if len(ids) == len(value):
        return (Tokens(ids),)
    if ids:
        raise InvalidRequest(f"'{param}' mixes token ids with other entries.", param=param, code="invalid_type")
    # Texts and lists of ids may stand side by side: each entry is a prompt of its own.
    return tuple(Text(item) if isinstance(item, str) else Tokens(tuple(item)) for item in value if not isinstance(item, int))
