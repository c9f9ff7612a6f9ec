"""The body of POST /v1/completions, and its answer. Source: OpenAI API reference, "Create completion" (legacy)."""

from typing import Annotated

from msgspec import Meta, Struct

from gateway.schema.common import GenerationFields, Usage
from gateway.schema.scalars import ChoiceCount, LegacyLogprobs, PromptInput


class CompletionRequest(GenerationFields, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything a completion request may carry. `max_tokens` 0 is legal together with `echo`."""

    prompt: PromptInput
    max_tokens: Annotated[int, Meta(ge=0, le=2**31 - 1)] | None = None
    echo: bool | None = None
    logprobs: LegacyLogprobs | None = None
    best_of: ChoiceCount | None = None
    suffix: None = None


class LegacyTokenLogprobs(Struct, frozen=True):
    """Parallel lists, one entry per token; `text_offset` counts characters from the start of this choice's text."""

    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None] | None
    text_offset: list[int]


class CompletionChoice(Struct, frozen=True):
    """One answer to one prompt."""

    text: str
    index: int
    logprobs: LegacyTokenLogprobs | None
    finish_reason: str | None


class Completion(Struct, frozen=True):
    """The whole answer."""

    id: str
    object: str
    created: int
    model: str
    system_fingerprint: str
    choices: list[CompletionChoice]
    usage: Usage
