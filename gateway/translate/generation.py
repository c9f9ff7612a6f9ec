"""The parameters that chat and legacy completions share: checks across fields, sampling, stop strings, usage."""

from backends.types import Sampling
from backends.types import Usage as TokenUsage
from gateway.errors import InvalidRequest
from gateway.schema.common import GenerationFields, PromptTokensDetails, Usage

_SERVICE_TIERS = ("auto", "default")


def check_shared(body: GenerationFields) -> None:
    """Refuse values that are legal in the API and cannot be honoured here.

    Raises:
        InvalidRequest: names the parameter and what is possible instead.
    """
    if body.store:
        raise unsupported("store", "true", "nothing is stored here")
    if body.service_tier is not None and body.service_tier not in _SERVICE_TIERS:
        raise unsupported("service_tier", body.service_tier, "only 'auto' and 'default' exist here")
    if body.stream_options is None:
        return
    if not body.stream:
        raise InvalidRequest(
            "'stream_options' is only allowed when 'stream' is true.", param="stream_options", code="invalid_value"
        )
    if body.stream_options.include_obfuscation:
        raise unsupported("stream_options.include_obfuscation", "true", "streams are not padded here")


def unsupported(param: str, value: str, why: str) -> InvalidRequest:
    """The error for a value that the API knows and this server does not."""
    return InvalidRequest(f"'{param}' does not support '{value[:80]}' here: {why}.", param=param, code="unsupported_value")


def to_sampling(body: GenerationFields) -> Sampling:
    """Collect what decides the choice of tokens; absent and null mean the API's defaults."""
    return Sampling(
        logit_bias=body.logit_bias or {},
        repetition_penalty=1.0 if body.repetition_penalty is None else body.repetition_penalty,
        frequency_penalty=body.frequency_penalty or 0.0,
        presence_penalty=body.presence_penalty or 0.0,
        temperature=1.0 if body.temperature is None else body.temperature,
        top_k=body.top_k or 0,
        top_p=1.0 if body.top_p is None else body.top_p,
        min_p=body.min_p or 0.0,
        seed=body.seed,
    )


def to_stop(body: GenerationFields) -> tuple[str, ...]:
    """The stop strings. An empty one would match at once, so it means none."""
    given = [body.stop] if isinstance(body.stop, str) else body.stop or []
    return tuple(stop for stop in given if stop)


def wants_usage(body: GenerationFields) -> bool:
    """Whether a stream ends with a usage chunk."""
    return bool(body.stream_options is not None and body.stream_options.include_usage)


def to_wire_usage(usage: TokenUsage) -> Usage:
    """The usage object of chat and completions."""
    details = PromptTokensDetails(usage.cached_tokens)
    return Usage(usage.prompt_tokens, usage.completion_tokens, usage.total_tokens, details)
