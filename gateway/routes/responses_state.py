"""What a turn of the Responses API continues from, and what it leaves behind.

Items are kept as JSON, in the form of the API. A response keeps the whole list up to its own output; a conversation gets input
and output of a turn in one write, once the answer is complete. Two turns of one conversation at the same time do not see each
other, and neither is lost: they follow each other in the order in which they ended.
"""

import logging
from collections.abc import Sequence
from typing import NamedTuple

import msgspec
from msgspec import Struct

from gateway.context.conversations import Conversation, Conversations
from gateway.context.errors import ContextUnavailable, InvalidId, TooLarge
from gateway.context.responses_store import StoredResponse, StoredResponses
from gateway.errors import InvalidRequest
from gateway.schema.responses import ResponseRequest
from gateway.schema.responses_answer import ConversationObject
from gateway.schema.responses_items import InputItem
from gateway.translate.responses_draft import Draft
from gateway.translate.responses_items import decode_items, encode_items, new_id

logger = logging.getLogger(__name__)

_encode = msgspec.json.Encoder().encode


class UnknownState(InvalidRequest):
    """Nothing with that id is kept for this tenant, or no longer."""

    status = 404


class ResponsesState(NamedTuple):
    """The two stores."""

    responses: StoredResponses
    conversations: Conversations


class _Label(Struct, frozen=True, tag_field="object", tag="conversation"):
    """The first entry of a conversation that has metadata. Items begin with another field, so nothing else looks like it."""

    metadata: dict[str, str]


_LABEL_HEAD = b'{"object":"conversation"'
_decode_label = msgspec.json.Decoder(_Label).decode


async def load_history(state: ResponsesState, tenant: str, body: ResponseRequest) -> tuple[InputItem, ...]:
    """The items of the turns before this one.

    Raises:
        UnknownState: the response or conversation that the request names does not exist.
        ContextUnavailable: the store does not answer.
    """
    previous, name = body.previous_response_id, conversation_id(body)
    if previous is not None:
        stored = await find_response(state, tenant, previous)
        if stored is None:
            raise UnknownState(
                f"Previous response with id '{previous}' not found.",
                param="previous_response_id",
                code="previous_response_not_found",
            )
        return decode_items(stored.items)
    if name is None:
        return ()
    return decode_items(items_of(await get_conversation(state, tenant, name)))


class Turn(NamedTuple):
    """Whose turn it is, and all items before its output. `fresh` is how many of them are new in this turn."""

    tenant: str
    conversation: str | None
    items: tuple[InputItem, ...]
    fresh: int

    async def keep(self, state: ResponsesState, draft: Draft) -> None:
        """Write down a turn that is complete. A response that cannot be stored says so itself (`store` is false).

        Raises:
            ContextUnavailable: the conversation cannot be written.
            TooLarge: the turn does not fit into the conversation.
        """
        output = encode_items(draft.response.output)
        if self.conversation is not None:
            new = encode_items(self.items[len(self.items) - self.fresh :])
            await state.conversations.append(self.tenant, self.conversation, (*new, *output))
        if not draft.response.store:
            return
        response = draft.response
        stored = StoredResponse(response.id, draft.body(), (*encode_items(self.items), *output), response.previous_response_id)
        try:
            await state.responses.put(self.tenant, stored)
        except (ContextUnavailable, TooLarge) as error:
            logger.warning("a response was not stored: %s", error.message)
            draft.not_stored()


def conversation_id(body: ResponseRequest) -> str | None:
    """The conversation that a request belongs to."""
    named = body.conversation
    return named if named is None or isinstance(named, str) else named.id


async def find_response(state: ResponsesState, tenant: str, id: str) -> StoredResponse | None:
    """A stored response; None when there is none, or when no id looks like that."""
    try:
        return await state.responses.get(tenant, id)
    except InvalidId:
        return None


async def get_response(state: ResponsesState, tenant: str, id: str) -> StoredResponse:
    """A stored response. Raises UnknownState when there is none."""
    stored = await find_response(state, tenant, id)
    if stored is None:
        raise unknown_response(id)
    return stored


def unknown_response(id: str) -> UnknownState:
    """The error for a response that is not there."""
    return UnknownState(f"Response with id '{id[:80]}' not found.", code="response_not_found")


def input_items(stored: StoredResponse) -> Sequence[bytes]:
    """What a response was an answer to, its earlier turns included."""
    output = msgspec.json.decode(stored.body, type=_Output).output
    return stored.items[: len(stored.items) - len(output)]


class _Output(Struct):
    output: list[msgspec.Raw]


async def create_conversation(state: ResponsesState, tenant: str, items: Sequence[InputItem], metadata: dict[str, str]) -> str:
    """Begin a conversation and return its id."""
    id = new_id("conv")
    label = (_encode(_Label(metadata)),) if metadata else ()
    await state.conversations.append(tenant, id, (*label, *encode_items(items)), expected=0)
    return id


async def get_conversation(state: ResponsesState, tenant: str, id: str) -> Conversation:
    """A conversation. Raises UnknownState when there is none."""
    try:
        conversation = await state.conversations.get(tenant, id)
    except InvalidId:
        conversation = None
    if conversation is None:
        raise unknown_conversation(id)
    return conversation


def unknown_conversation(id: str) -> UnknownState:
    """The error for a conversation that is not there."""
    text = f"Conversation with id '{id[:80]}' not found."
    return UnknownState(text, param="conversation", code="conversation_not_found")


def items_of(conversation: Conversation) -> tuple[bytes, ...]:
    """The items, without what describes the conversation itself."""
    items = conversation.items
    return items[1:] if items and items[0].startswith(_LABEL_HEAD) else items


def describe(conversation: Conversation) -> ConversationObject:
    """What the API says about a conversation."""
    items = conversation.items
    labelled = bool(items) and items[0].startswith(_LABEL_HEAD)
    metadata = _decode_label(items[0]).metadata if labelled else {}
    return ConversationObject(id=conversation.id, created_at=int(conversation.created_at), metadata=metadata)
