"""The turns and content blocks of the Messages API as they come in.

The role picks the Struct, so that a block in the wrong role is refused. Blocks that only Anthropic's own servers make or read
(documents, search results, server tools) have no Struct here and are refused by their type. Fields that a client sends back
because an answer carried them are listed as such. Source: Anthropic API reference, "Messages"; types of anthropic-sdk-python.
"""

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from gateway.schema.scalars import MAX_MESSAGES, MAX_PARTS

CallId = Annotated[str, Meta(min_length=1, max_length=256)]


class CacheControl(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A breakpoint of the prompt cache. Prefixes are cached here without one."""

    type: Literal["ephemeral"]
    ttl: Literal["5m", "1h"] | None = None


class TextBlock(Struct, frozen=True, forbid_unknown_fields=True, tag_field="type", tag="text", kw_only=True):
    """Plain text."""

    text: str
    cache_control: CacheControl | None = None
    # Output-only: an answer of another server may have carried them.
    citations: list[Any] | None = None


class Base64Source(Struct, frozen=True, forbid_unknown_fields=True, tag_field="type", tag="base64", kw_only=True):
    """An image inside the request."""

    media_type: Literal["image/jpeg", "image/png", "image/gif", "image/webp"]
    data: str


class UrlSource(Struct, frozen=True, forbid_unknown_fields=True, tag_field="type", tag="url", kw_only=True):
    """An image that the backend fetches, if it does that."""

    url: str


class ImageBlock(Struct, frozen=True, forbid_unknown_fields=True, tag_field="type", tag="image", kw_only=True):
    """An image; a text model refuses it."""

    source: Base64Source | UrlSource
    cache_control: CacheControl | None = None


class ToolUseBlock(Struct, frozen=True, forbid_unknown_fields=True, tag_field="type", tag="tool_use", kw_only=True):
    """A call of an earlier turn."""

    id: CallId
    name: str
    input: dict[str, Any]
    cache_control: CacheControl | None = None
    # Output-only: who called. It changes nothing for a tool of the client.
    caller: dict[str, Any] | None = None


class ToolResultBlock(Struct, frozen=True, forbid_unknown_fields=True, tag_field="type", tag="tool_result", kw_only=True):
    """What a called tool returned, or with `is_error` why it did not."""

    tool_use_id: CallId
    content: str | Annotated[list[TextBlock | ImageBlock], Meta(max_length=MAX_PARTS)] | None = None
    is_error: bool | None = None
    cache_control: CacheControl | None = None


class ThinkingBlock(Struct, frozen=True, forbid_unknown_fields=True, tag_field="type", tag="thinking", kw_only=True):
    """What the model thought in an earlier turn."""

    thinking: str
    signature: str = ""


class RedactedThinkingBlock(
    Struct, frozen=True, forbid_unknown_fields=True, tag_field="type", tag="redacted_thinking", kw_only=True
):
    """What a model of Anthropic thought, encrypted."""

    data: str


UserBlocks = Annotated[list[TextBlock | ImageBlock | ToolResultBlock], Meta(max_length=MAX_PARTS)]
AssistantBlocks = Annotated[list[TextBlock | ToolUseBlock | ThinkingBlock | RedactedThinkingBlock], Meta(max_length=MAX_PARTS)]
SystemBlocks = Annotated[list[TextBlock], Meta(max_length=MAX_PARTS)]


class UserTurn(Struct, frozen=True, forbid_unknown_fields=True, tag_field="role", tag="user", kw_only=True):
    """What the user says, and what tools returned."""

    content: str | UserBlocks


class AssistantTurn(Struct, frozen=True, forbid_unknown_fields=True, tag_field="role", tag="assistant", kw_only=True):
    """What the model said and called."""

    content: str | AssistantBlocks


class SystemTurn(Struct, frozen=True, forbid_unknown_fields=True, tag_field="role", tag="system", kw_only=True):
    """Instructions of the operator in the middle of a conversation."""

    content: str | SystemBlocks


Turn = UserTurn | AssistantTurn | SystemTurn
Turns = Annotated[list[Turn], Meta(min_length=1, max_length=MAX_MESSAGES)]
