"""What the Responses API and the Conversations API answer with.

Source: OpenAI API reference, "The response object"; the Open Responses specification, which requires every field that has no
default here.
"""

from typing import Literal

import msgspec
from msgspec import Struct

from gateway.schema.chat_response import ChatTokenLogprob
from gateway.schema.responses import ConversationName, FunctionTool, ResponseToolChoice, TextFormat
from gateway.schema.responses_items import ItemStatus

ResponseStatus = Literal["in_progress", "completed", "incomplete", "failed"]


class TextPart(Struct, frozen=True, tag_field="type", tag="output_text"):
    """Text of an answer. `logprobs` is empty unless it was asked for; nothing here makes annotations."""

    text: str
    annotations: list[None]
    logprobs: list[ChatTokenLogprob]


class MessageItem(Struct, frozen=True, tag_field="type", tag="message"):
    """What the model says."""

    id: str
    status: ItemStatus
    role: Literal["assistant"]
    content: list[TextPart]


class FunctionCallItem(Struct, frozen=True, tag_field="type", tag="function_call"):
    """What the model wants called; `arguments` is JSON text. `call_id` is what its output must name."""

    id: str
    status: ItemStatus
    call_id: str
    name: str
    arguments: str


class ReasoningPart(Struct, frozen=True, tag_field="type", tag="reasoning_text"):
    """Thoughts, word by word."""

    text: str


class ReasoningItem(Struct, frozen=True, tag_field="type", tag="reasoning"):
    """What the model wrote for itself before it answered. Nothing here sums it up, so `summary` is empty."""

    id: str
    status: ItemStatus
    summary: list[None]
    content: list[ReasoningPart]


OutputItem = MessageItem | FunctionCallItem | ReasoningItem


class TextSettings(Struct, frozen=True):
    """The shape of the text that was asked for."""

    format: TextFormat
    verbosity: str


class ReasoningSettings(Struct, frozen=True):
    """The thinking that was asked for."""

    effort: str | None
    summary: str | None


class IncompleteDetails(Struct, frozen=True):
    """Why an answer stops early."""

    reason: Literal["max_output_tokens", "content_filter"]


class ResponseError(Struct, frozen=True):
    """Why an answer failed."""

    code: str
    message: str


class InputTokensDetails(Struct, frozen=True):
    """Input tokens that did not have to be computed. Nobody pays for writing a cache here."""

    cached_tokens: int
    cache_write_tokens: int = 0


class OutputTokensDetails(Struct, frozen=True):
    """Backends count thoughts as output, and do not say how much of it they are."""

    reasoning_tokens: int = 0


class ResponseUsage(Struct, frozen=True):
    """Tokens of the whole request."""

    input_tokens: int
    input_tokens_details: InputTokensDetails
    output_tokens: int
    output_tokens_details: OutputTokensDetails
    total_tokens: int


class ResponseObject(Struct, frozen=True, kw_only=True):
    """A response, at any point of its life. Times are in Unix seconds."""

    id: str
    object: Literal["response"] = "response"
    created_at: int
    completed_at: int | None = None
    status: ResponseStatus = "in_progress"
    error: ResponseError | None = None
    incomplete_details: IncompleteDetails | None = None
    background: bool = False
    conversation: ConversationName | None
    instructions: str | None
    max_output_tokens: int | None
    max_tool_calls: int | None
    model: str
    output: list[OutputItem] = []
    parallel_tool_calls: bool
    presence_penalty: float
    frequency_penalty: float
    previous_response_id: str | None
    prompt_cache_key: str | None
    reasoning: ReasoningSettings
    safety_identifier: str | None
    service_tier: str = "default"
    store: bool
    temperature: float
    text: TextSettings
    tool_choice: ResponseToolChoice
    tools: list[FunctionTool]
    top_logprobs: int
    top_p: float
    truncation: Literal["disabled"] = "disabled"
    usage: ResponseUsage | None = None
    user: str | None
    metadata: dict[str, str]


class Deleted(Struct, frozen=True):
    """What was removed."""

    id: str
    object: str
    deleted: bool = True


class ItemList(Struct, frozen=True, kw_only=True):
    """A page of items, each as JSON."""

    object: str = "list"
    data: list[msgspec.Raw]
    first_id: str | None
    last_id: str | None
    has_more: bool


class ConversationObject(Struct, frozen=True, kw_only=True):
    """A conversation, without its items."""

    id: str
    object: str = "conversation"
    created_at: int
    metadata: dict[str, str]
