"""Legacy completions: body to requests (one per prompt), answer to body."""

import msgspec

from backends.types import GenerateRequest
from gateway.errors import InvalidRequest
from gateway.schema.completions import Completion, CompletionChoice, CompletionRequest
from gateway.schema.scalars import MAX_CHOICES, MAX_PROMPTS
from gateway.translate.answer import Answer
from gateway.translate.generation import check_shared, to_sampling, to_stop, to_wire_usage, unsupported
from gateway.translate.logprobs import LegacyLogprobs
from gateway.translate.prompts import to_prompts
from gateway.translate.stamp import Stamp

DEFAULT_MAX_TOKENS = 16


def to_requests(body: CompletionRequest, *, request_id: str, model: str, tenant: str = "") -> list[GenerateRequest]:
    """Translate a body into one request per prompt; choice `c` of prompt `p` is choice `p * n + c` of the answer.

    Raises:
        InvalidRequest: fields contradict each other, or ask for what is not served here.
    """
    check_shared(body)
    n = body.n or 1
    if body.best_of is not None and body.best_of != n:
        raise unsupported("best_of", str(body.best_of), f"it must equal 'n' ({n})")
    max_tokens = DEFAULT_MAX_TOKENS if body.max_tokens is None else body.max_tokens
    if max_tokens == 0 and not body.echo:
        raise InvalidRequest("'max_tokens' 0 needs 'echo' to be true.", param="max_tokens", code="invalid_value")
    prompts = to_prompts(body.prompt, "prompt", limit=MAX_PROMPTS, allow_empty=True)
    if len(prompts) * n > MAX_CHOICES:
        text = f"{len(prompts)} prompts with 'n' {n} make {len(prompts) * n} choices, the limit is {MAX_CHOICES}."
        raise InvalidRequest(text, param="n", code="invalid_value")
    return [
        GenerateRequest(
            id=request_id if len(prompts) == 1 else f"{request_id}-{index}",
            model=model,
            prompt=prompt,
            max_tokens=max_tokens,
            n=n,
            stop=to_stop(body),
            stop_token_ids=tuple(body.stop_token_ids or ()),
            ignore_eos=bool(body.ignore_eos),
            sampling=to_sampling(body),
            logprobs=body.logprobs,
            echo=bool(body.echo),
            tenant=tenant,
        )
        for index, prompt in enumerate(prompts)
    ]


def to_response(answer: Answer, stamp: Stamp, *, logprobs: int | None) -> bytes:
    """Encode a whole answer.

    Raises:
        Failed: the backend left a choice unfinished.
    """
    choices = [
        CompletionChoice(
            text=choice.text,
            index=index,
            logprobs=None if logprobs is None else LegacyLogprobs(logprobs).take(choice.logprobs),
            finish_reason=answer.finish_of(index),
        )
        for index, choice in enumerate(answer.choices)
    ]
    return msgspec.json.encode(
        Completion(
            id=stamp.id,
            object="text_completion",
            created=stamp.created,
            model=stamp.model,
            system_fingerprint=stamp.fingerprint,
            choices=choices,
            usage=to_wire_usage(answer.usage),
        )
    )
