"""The turns of a conversation as they come in.

The role picks the Struct, so that a field in the wrong role is an unknown field. Fields that a client may send back because an
answer of ours (or of another server) carried them are listed as such.
"""

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from gateway.schema.scalars import MAX_MESSAGES, MAX_PARTS, SpeakerName


class TextPart(Struct, frozen=True, forbid_unknown_fields=True, tag_field="type", tag="text"):
    """Plain text."""

    text: str


class ImageUrl(Struct, frozen=True, forbid_unknown_fields=True):
    """Where an image is."""

    url: str
    detail: Literal["auto", "low", "high"] | None = None


class ImagePart(Struct, frozen=True, forbid_unknown_fields=True, tag_field="type", tag="image_url"):
    """An image; a text model refuses it."""

    image_url: ImageUrl


class RefusalPart(Struct, frozen=True, forbid_unknown_fields=True, tag_field="type", tag="refusal"):
    """What the model said when it refused in an earlier turn."""

    refusal: str


TextParts = Annotated[list[TextPart], Meta(min_length=1, max_length=MAX_PARTS)]
UserParts = Annotated[list[TextPart | ImagePart], Meta(min_length=1, max_length=MAX_PARTS)]
AssistantParts = Annotated[list[TextPart | RefusalPart], Meta(min_length=1, max_length=MAX_PARTS)]


class SystemMessage(Struct, frozen=True, forbid_unknown_fields=True, tag_field="role", tag="system", kw_only=True):
    """Instructions of the operator."""

    content: str | TextParts
    name: SpeakerName | None = None


class DeveloperMessage(Struct, frozen=True, forbid_unknown_fields=True, tag_field="role", tag="developer", kw_only=True):
    """Instructions of the developer; the newer name of `system`."""

    content: str | TextParts
    name: SpeakerName | None = None


class UserMessage(Struct, frozen=True, forbid_unknown_fields=True, tag_field="role", tag="user", kw_only=True):
    """What the user says."""

    content: str | UserParts
    name: SpeakerName | None = None


class CalledFunction(Struct, frozen=True, forbid_unknown_fields=True):
    """A call as the model wrote it: `arguments` is text and may be malformed JSON, because models write it."""

    name: str
    arguments: str
    # The Python SDK's `parse()` adds it to the message that users append to their history.
    parsed_arguments: Any = None


class CalledTool(Struct, frozen=True, forbid_unknown_fields=True, tag_field="type", tag="function", kw_only=True):
    """A finished call of an earlier turn."""

    id: str
    function: CalledFunction
    # Accumulators of streams leave it in the call.
    index: int | None = None


class AssistantMessage(Struct, frozen=True, forbid_unknown_fields=True, tag_field="role", tag="assistant", kw_only=True):
    """What the model said. `content` may be missing beside tool calls or a refusal."""

    content: str | AssistantParts | None = None
    name: SpeakerName | None = None
    tool_calls: Annotated[list[CalledTool], Meta(max_length=128)] | None = None
    refusal: str | None = None
    # Output-only fields, which SDKs send back unchanged.
    annotations: list[Any] | None = None
    parsed: Any = None
    audio: None = None
    function_call: None = None


class ToolMessage(Struct, frozen=True, forbid_unknown_fields=True, tag_field="role", tag="tool", kw_only=True):
    """What a called tool returned."""

    content: str | TextParts
    tool_call_id: str
    name: SpeakerName | None = None


WireMessage = SystemMessage | DeveloperMessage | UserMessage | AssistantMessage | ToolMessage
Messages = Annotated[list[WireMessage], Meta(min_length=1, max_length=MAX_MESSAGES)]
