"""What chat and legacy completion requests share, and the usage object of every answer."""

from msgspec import Struct

from gateway.schema.scalars import (
    ChoiceCount,
    LogitBias,
    Metadata,
    MinP,
    ModelName,
    Penalty,
    RepetitionPenalty,
    Seed,
    Stop,
    StopTokenIds,
    Temperature,
    TopK,
    TopP,
)


class StreamOptions(Struct, frozen=True, forbid_unknown_fields=True):
    """How a stream is sent."""

    include_usage: bool | None = None
    include_obfuscation: bool | None = None


class GenerationFields(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Parameters that mean the same for a conversation and for a raw prompt."""

    model: ModelName | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: ChoiceCount | None = None
    stop: Stop | None = None
    temperature: Temperature | None = None
    top_p: TopP | None = None
    top_k: TopK | None = None
    min_p: MinP | None = None
    frequency_penalty: Penalty | None = None
    presence_penalty: Penalty | None = None
    repetition_penalty: RepetitionPenalty | None = None
    seed: Seed | None = None
    logit_bias: LogitBias | None = None
    ignore_eos: bool | None = None
    stop_token_ids: StopTokenIds | None = None
    user: str | None = None
    metadata: Metadata | None = None
    store: bool | None = None
    service_tier: str | None = None


class PromptTokensDetails(Struct, frozen=True):
    """Prompt tokens that did not have to be computed."""

    cached_tokens: int


class Usage(Struct, frozen=True):
    """Tokens of the whole request, all choices together."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails
