"""The bodies of POST /v1/responses and POST /v1/conversations.

A parameter typed `None` is known and refused by name: any other value than null is an error that says why
(`gateway.schema.responses_parameters`). Source: OpenAI API reference, "Create a model response"; the Open Responses
specification, which adds the penalties.
"""

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, field

from gateway.schema.responses_items import InputItems
from gateway.schema.scalars import (
    MAX_TOOLS,
    FunctionName,
    MaxTokens,
    Metadata,
    ModelName,
    Penalty,
    Temperature,
    TopLogprobs,
    TopP,
)

StateId = Annotated[str, Meta(min_length=1, max_length=128)]


class ConversationName(Struct, frozen=True, forbid_unknown_fields=True):
    """A conversation by its id."""

    id: StateId


class ReasoningOptions(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How much the model may think before it answers."""

    effort: str | None = None
    summary: str | None = None
    generate_summary: str | None = None


class ResponseStreamOptions(Struct, frozen=True, forbid_unknown_fields=True):
    """How a stream is sent."""

    include_obfuscation: bool | None = None


class PlainText(Struct, frozen=True, tag_field="type", tag="text", forbid_unknown_fields=True):
    """No constraint."""


class JsonObject(Struct, frozen=True, tag_field="type", tag="json_object", forbid_unknown_fields=True):
    """Some JSON object."""


class JsonSchema(Struct, frozen=True, tag_field="type", tag="json_schema", forbid_unknown_fields=True, kw_only=True):
    """JSON that a schema accepts. It is always enforced, also with `strict` false."""

    name: FunctionName
    description: str | None = None
    json_schema: dict[str, Any] = field(name="schema")
    strict: bool | None = None


TextFormat = PlainText | JsonObject | JsonSchema


class TextOptions(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What shape the text has."""

    format: TextFormat | None = None
    verbosity: str | None = None


class FunctionTool(Struct, frozen=True, tag_field="type", tag="function", forbid_unknown_fields=True, kw_only=True):
    """A function on offer; `parameters` is a JSON schema. There are no tools that run here."""

    name: FunctionName
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class NamedFunction(Struct, frozen=True, tag_field="type", tag="function", forbid_unknown_fields=True):
    """The model must call this very function."""

    name: str


class AllowedTools(Struct, frozen=True, tag_field="type", tag="allowed_tools", forbid_unknown_fields=True, kw_only=True):
    """The model may (or must) call one of these functions, which are some of `tools`."""

    mode: Literal["auto", "required"] = "auto"
    tools: Annotated[list[NamedFunction], Meta(min_length=1, max_length=MAX_TOOLS)]


ResponseToolChoice = Literal["none", "auto", "required"] | NamedFunction | AllowedTools
ResponseTools = Annotated[list[FunctionTool], Meta(max_length=MAX_TOOLS)]


class ResponseRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything a request for a response may carry."""

    model: ModelName | None = None
    input: str | InputItems | None = None
    instructions: str | None = None
    previous_response_id: StateId | None = None
    conversation: StateId | ConversationName | None = None
    store: bool | None = None
    stream: bool | None = None
    stream_options: ResponseStreamOptions | None = None
    max_output_tokens: MaxTokens | None = None
    temperature: Temperature | None = None
    top_p: TopP | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    top_logprobs: TopLogprobs | None = None
    include: Annotated[list[str], Meta(max_length=16)] | None = None
    text: TextOptions | None = None
    tools: ResponseTools | None = None
    tool_choice: ResponseToolChoice | None = None
    parallel_tool_calls: bool | None = None
    reasoning: ReasoningOptions | None = None
    metadata: Metadata | None = None
    max_tool_calls: MaxTokens | None = None
    truncation: str | None = None
    background: bool | None = None
    service_tier: str | None = None
    user: str | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    prompt_cache_retention: str | None = None
    access_programs: None = None
    background_options: None = None
    context_management: None = None
    image: None = None
    moderation: None = None
    prompt: None = None
    prompt_cache_options: None = None


class ConversationRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a new conversation begins with."""

    items: InputItems | None = None
    metadata: Metadata | None = None


class ItemsRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is added to a conversation."""

    items: InputItems
