"""Items of the Responses API: what is wrong with them, the form in which they are kept, and the conversation they make.

A turn of the model may be several items (a message, then calls), which make one message of our vocabulary. Reasoning is kept
and given back, but leaves no trace in the conversation: chat templates drop the thoughts of earlier turns, and models are
trained without them.
"""

import uuid
from collections.abc import Sequence

import msgspec

from backends.types import FunctionCall, ImagePart, ImageUrl, Message, Part, TextPart, ToolCall
from gateway.errors import InvalidRequest
from gateway.schema import responses_items as wire
from gateway.schema.responses_items import FOREIGN, REQUIRED, InputItem, ItemPart

_decode = msgspec.json.Decoder(InputItem).decode
_encode = msgspec.json.Encoder().encode

_ID_PREFIXES: dict[wire.ItemType, str] = {
    "message": "msg",
    "function_call": "fc",
    "function_call_output": "fco",
    "reasoning": "rs",
}


def new_id(prefix: str) -> str:
    """A random id, such as `msg_…`."""
    return f"{prefix}_{uuid.uuid4().hex}"


def to_items(given: str | Sequence[InputItem] | None, param: str = "input") -> tuple[InputItem, ...]:
    """Check items and complete them: ids, statuses, content as parts. A text is one user message.

    Raises:
        InvalidRequest: a field is missing, in the wrong kind of item, or not served here.
    """
    if isinstance(given, str):
        return (_complete(InputItem(type="message", role="user", content=given)),)
    for index, item in enumerate(given or ()):
        _check(item, f"{param}[{index}]")
    return tuple(map(_complete, given or ()))


def decode_items(stored: Sequence[bytes]) -> tuple[InputItem, ...]:
    """Read items that were kept, both those of clients and those of answers."""
    return tuple(map(_decode, stored))


def encode_items(items: Sequence[msgspec.Struct]) -> tuple[bytes, ...]:
    """Each item as JSON, to be kept."""
    return tuple(map(_encode, items))


def _check(item: InputItem, param: str) -> None:
    kind = item.type or "message"
    if kind == "item_reference":
        text = f"'{param}.type' cannot be 'item_reference': send the item itself, or name 'previous_response_id'."
        raise InvalidRequest(text, param=f"{param}.type", code="unsupported_value")
    for name in REQUIRED[kind]:
        if getattr(item, name) is None:
            where = f"{param}.{name}"
            raise InvalidRequest(f"Missing required parameter: '{where}'.", param=where, code="missing_required_parameter")
    for name in FOREIGN[kind]:
        if getattr(item, name) is not None:
            where = f"{param}.{name}"
            raise InvalidRequest(f"'{where}' does not belong to an item of type '{kind}'.", param=where, code="invalid_value")
    if kind == "message":
        _check_parts(item.content, item.role or "user", f"{param}.content")
    elif kind == "function_call_output":
        _check_parts(item.output, "user", f"{param}.output")


def _check_parts(content: str | list[ItemPart] | None, role: wire.ItemRole, param: str) -> None:
    """Text may stand anywhere; an image only where a user speaks, a refusal only where the model does."""
    if not isinstance(content, list):
        return
    if not content:
        raise InvalidRequest(f"'{param}' must not be empty.", param=param, code="invalid_value")
    for index, part in enumerate(content):
        match part:
            case wire.InputText() | wire.OutputText():
                continue
            case wire.InputImage() if role == "user":
                continue
            case wire.Refusal() if role == "assistant":
                continue
        where, kind = f"{param}[{index}].type", part.__struct_config__.tag
        raise InvalidRequest(f"'{where}' cannot be '{kind}' here.", param=where, code="invalid_value")


def _complete(item: InputItem) -> InputItem:
    kind = item.type or "message"
    by_model = item.role == "assistant"
    return InputItem(
        type=kind,
        id=item.id or new_id(_ID_PREFIXES[kind]),
        status=item.status or (None if kind == "reasoning" else "completed"),
        role=item.role,
        content=_parts(item.content, by_model=by_model),
        phase=item.phase,
        call_id=item.call_id,
        name=item.name,
        arguments=item.arguments,
        output=item.output,
        summary=item.summary if kind != "reasoning" else item.summary or [],
        encrypted_content=item.encrypted_content,
    )


def _parts(content: str | list[ItemPart] | None, *, by_model: bool) -> list[ItemPart] | None:
    if content is None:
        return None
    if isinstance(content, str):
        return [wire.OutputText(text=content, annotations=[]) if by_model else wire.InputText(text=content)]
    return [_complete_part(part) for part in content]


def _complete_part(part: ItemPart) -> ItemPart:
    match part:
        case wire.OutputText():
            return wire.OutputText(text=part.text, annotations=[])
        case wire.InputImage():
            return wire.InputImage(image_url=part.image_url, detail=part.detail or "auto")
        case _:
            return part


def to_messages(items: Sequence[InputItem]) -> tuple[Message, ...]:
    """The conversation that complete items make.

    Raises:
        InvalidRequest: the output of a call that nobody made.
    """
    messages: list[Message] = []
    calls: set[str] = set()
    for item in items:
        match item.type:
            case "function_call":
                calls.add(item.call_id or "")
                _add_call(messages, item)
            case "function_call_output":
                if item.call_id not in calls:
                    text = f"No function call has the call_id '{(item.call_id or '')[:80]}' that an output names."
                    raise InvalidRequest(text, param="input", code="invalid_value")
                messages.append(Message(role="tool", content=_content(item.output or ""), tool_call_id=item.call_id))
            case "message":
                messages.append(Message(role=item.role or "user", content=_content(item.content or "")))
    return tuple(messages)


def _add_call(messages: list[Message], item: InputItem) -> None:
    """Put a call into the model's turn, which may have begun with text or with other calls."""
    call = ToolCall(id=item.call_id or "", function=FunctionCall(item.name or "", item.arguments or ""))
    if messages and messages[-1].role == "assistant":
        turn = messages.pop()
        messages.append(Message(role="assistant", content=turn.content, tool_calls=(*turn.tool_calls, call)))
    else:
        messages.append(Message(role="assistant", tool_calls=(call,)))


def _content(content: str | list[ItemPart]) -> str | tuple[Part, ...]:
    """Join text parts to one text, which every chat template can read; keep parts where an image is among them."""
    if isinstance(content, str):
        return content
    parts = tuple(map(_part, content))
    if any(isinstance(part, ImagePart) for part in parts):
        return parts
    return "".join(part.text for part in parts if isinstance(part, TextPart))


def _part(part: ItemPart) -> Part:
    match part:
        case wire.InputImage():
            return ImagePart(ImageUrl(part.image_url, part.detail or "auto"))
        case wire.Refusal():
            return TextPart(part.refusal)
        case wire.InputText() | wire.OutputText() | wire.ReasoningText():
            return TextPart(part.text)
