"""The bodies of POST /v1/messages and /v1/messages/count_tokens.

A parameter typed `None` is known and refused by name: any other value than null is an error that says why
(`gateway.schema.messages_api_parameters`). Source: Anthropic API reference; the types of anthropic-sdk-python, with its beta.
"""

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, field

from gateway.schema.messages_api_blocks import CacheControl, SystemBlocks, Turns
from gateway.schema.scalars import MAX_TOOLS, MaxTokens, ModelName, StopString, TopK, TopP

ToolName = Annotated[str, Meta(pattern=r"\A[a-zA-Z0-9_-]{1,128}\Z")]
UnitTemperature = Annotated[float, Meta(ge=0.0, le=1.0)]
StopSequences = Annotated[list[StopString], Meta(max_length=64)]


class OfferedTool(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A tool on offer. `type` tells tools of the client (`custom`, or nothing) from those of Anthropic's servers."""

    name: ToolName
    type: str | None = None
    description: str | None = None
    input_schema: dict[str, Any] | None = None
    strict: bool | None = None
    cache_control: CacheControl | None = None
    eager_input_streaming: bool | None = None
    defer_loading: bool | None = None
    allowed_callers: list[str] | None = None
    input_examples: list[Any] | None = None


class AutoChoice(Struct, frozen=True, forbid_unknown_fields=True, tag_field="type", tag="auto", kw_only=True):
    """The model decides."""

    disable_parallel_tool_use: bool | None = None


class AnyChoice(Struct, frozen=True, forbid_unknown_fields=True, tag_field="type", tag="any", kw_only=True):
    """The model must call some tool."""

    disable_parallel_tool_use: bool | None = None


class NamedChoice(Struct, frozen=True, forbid_unknown_fields=True, tag_field="type", tag="tool", kw_only=True):
    """The model must call this very tool."""

    name: str
    disable_parallel_tool_use: bool | None = None


class NoChoice(Struct, frozen=True, forbid_unknown_fields=True, tag_field="type", tag="none", kw_only=True):
    """The model must not call."""


Choice = AutoChoice | AnyChoice | NamedChoice | NoChoice


class ThinkingConfig(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Whether the model thinks before it answers. Only `disabled` is honoured."""

    type: str
    budget_tokens: int | None = None
    display: str | None = None


class JsonOutput(Struct, frozen=True, forbid_unknown_fields=True, tag_field="type", tag="json_schema", kw_only=True):
    """JSON that a schema accepts."""

    json_schema: dict[str, Any] = field(name="schema")


class OutputConfig(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What the answer looks like, and how much effort goes into it."""

    format: JsonOutput | None = None
    effort: str | None = None


class EndUser(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Who is behind a request."""

    user_id: Annotated[str, Meta(max_length=512)] | None = None


class PromptFields(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What decides the prompt, and what the API lets stand beside it in both requests."""

    messages: Turns
    model: ModelName | None = None
    system: str | SystemBlocks | None = None
    tools: Annotated[list[OfferedTool], Meta(max_length=MAX_TOOLS)] | None = None
    tool_choice: Choice | None = None
    thinking: ThinkingConfig | None = None
    output_config: OutputConfig | None = None
    output_format: JsonOutput | None = None
    cache_control: CacheControl | None = None
    speed: str | None = None
    billing_policy: None = None
    compaction: None = None
    context_management: None = None
    mcp_servers: None = None
    thread: None = None


class CountTokensRequest(PromptFields, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything that a request to count tokens may carry."""


class MessagesRequest(PromptFields, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything that a request for an answer may carry."""

    max_tokens: MaxTokens
    stream: bool | None = None
    stop_sequences: StopSequences | None = None
    temperature: UnitTemperature | None = None
    top_p: TopP | None = None
    top_k: TopK | None = None
    metadata: EndUser | None = None
    service_tier: Literal["auto", "standard_only"] | None = None
    container: None = None
    diagnostics: None = None
    fallback_credit_token: None = None
    fallbacks: None = None
    inference_geo: None = None
