"""The items of the Responses API as they come in and as they are kept: messages, calls, their outputs, reasoning.

One Struct holds every kind, because a message may leave out its `type`, the tag by which a decoder tells kinds apart. Which
fields belong to which kind is a table below, checked in `gateway.translate.responses_items`. Answers of ours are valid input,
also as the Python SDK sends them back (`parsed`, `parsed_arguments`, explicit nulls). Source: OpenAI API reference, "Create a
model response"; the Open Responses specification, "Items".
"""

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from gateway.schema.scalars import MAX_MESSAGES, MAX_PARTS

MAX_ITEMS = MAX_MESSAGES

ItemId = Annotated[str, Meta(max_length=128)]
CallId = Annotated[str, Meta(min_length=1, max_length=128)]
ItemType = Literal["message", "function_call", "function_call_output", "reasoning", "item_reference"]
ItemStatus = Literal["in_progress", "completed", "incomplete"]
ItemRole = Literal["user", "assistant", "system", "developer"]


class _Part(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True, tag_field="type"):
    """A piece of the content of an item."""


class InputText(_Part, frozen=True, tag="input_text"):
    """Text for the model."""

    text: str
    prompt_cache_breakpoint: None = None


class OutputText(_Part, frozen=True, tag="output_text"):
    """Text of the model. What was noted about it (annotations, log probabilities) is not told to a model again."""

    text: str
    annotations: list[Any] | None = None
    logprobs: list[Any] | None = None
    parsed: Any = None


class Refusal(_Part, frozen=True, tag="refusal"):
    """What the model said when it refused in an earlier turn."""

    refusal: str


class InputImage(_Part, frozen=True, tag="input_image"):
    """An image by its URL (`https:` or `data:`); a text model refuses it. No files are kept here to name by id."""

    image_url: str
    detail: Literal["auto", "low", "high"] | None = None
    file_id: None = None
    prompt_cache_breakpoint: None = None


class ReasoningText(_Part, frozen=True, tag="reasoning_text"):
    """What a model thought."""

    text: str


class SummaryText(_Part, frozen=True, tag="summary_text"):
    """What a model thought, in short."""

    text: str


ItemPart = InputText | OutputText | Refusal | InputImage | ReasoningText
ItemParts = Annotated[list[ItemPart], Meta(max_length=MAX_PARTS)]


class InputItem(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """One item of any kind; without `type` it is a message."""

    type: ItemType | None = None
    id: ItemId | None = None
    status: ItemStatus | None = None
    role: ItemRole | None = None
    content: str | ItemParts | None = None
    phase: Literal["commentary", "final_answer"] | None = None
    call_id: CallId | None = None
    name: Annotated[str, Meta(max_length=128)] | None = None
    arguments: str | None = None
    output: str | ItemParts | None = None
    summary: Annotated[list[SummaryText], Meta(max_length=MAX_PARTS)] | None = None
    encrypted_content: str | None = None
    parsed_arguments: Any = None
    # The SDK's dumps of our own calls carry these as null.
    namespace: None = None
    caller: None = None
    async_: None = None


InputItems = Annotated[list[InputItem], Meta(max_length=MAX_ITEMS)]

REQUIRED: dict[ItemType, tuple[str, ...]] = {
    "message": ("role", "content"),
    "function_call": ("call_id", "name", "arguments"),
    "function_call_output": ("call_id", "output"),
    "reasoning": (),
    "item_reference": (),
}
"""What an item of a kind must have."""

FOREIGN: dict[ItemType, tuple[str, ...]] = {
    "message": ("call_id", "name", "arguments", "output", "summary", "encrypted_content", "parsed_arguments"),
    "function_call": ("role", "content", "phase", "output", "summary", "encrypted_content"),
    "function_call_output": (
        "role",
        "content",
        "phase",
        "name",
        "arguments",
        "summary",
        "encrypted_content",
        "parsed_arguments",
    ),
    "reasoning": ("role", "phase", "call_id", "name", "arguments", "output", "parsed_arguments"),
    "item_reference": (),
}
"""What an item of a kind cannot have."""
