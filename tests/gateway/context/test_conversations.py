"""Conversations and stored responses, over both stores."""

import asyncio
from collections.abc import Callable

import pytest
import zstandard

from gateway.context.codec import ZSTD
from gateway.context.config import ConversationConfig
from gateway.context.conversations import Conversations
from gateway.context.errors import Conflict, ContextUnavailable, InvalidId, TooLarge
from gateway.context.logs import LogStore, Segment
from gateway.context.responses_store import StoredResponse, StoredResponses
from gateway.context.scope import scoped_key

HELLO, LONG = b'{"role":"user","content":"hello"}', b'{"role":"user","content":"%s"}' % (b"very " * 2000)
CONFIG = ConversationConfig(ttl_s=100, max_items=10, max_bytes=40_000)


@pytest.fixture
def conversations(logs: LogStore) -> Conversations:
    return Conversations(logs, CONFIG)


@pytest.fixture
def responses(open_logs: Callable[[str], LogStore]) -> StoredResponses:
    return StoredResponses(open_logs("responses"), CONFIG)


async def test_a_conversation_grows_turn_by_turn(conversations: Conversations) -> None:
    assert await conversations.get("acme", "chat-1") is None
    assert await conversations.append("acme", "chat-1", [HELLO, LONG]) == 1
    assert await conversations.append("acme", "chat-1", [LONG], expected=1) == 2
    conversation = await conversations.get("acme", "chat-1")
    assert conversation is not None
    assert (conversation.id, conversation.version) == ("chat-1", 2)
    assert conversation.items == (HELLO, LONG, LONG)


async def test_tenants_never_see_each_others(conversations: Conversations, responses: StoredResponses) -> None:
    tenants = ["acme", "acme2", "", "acme\0", "\0acme", "ACME"]
    for number, tenant in enumerate(tenants):
        assert await conversations.get(tenant, "chat") is None
        assert await conversations.append(tenant, "chat", [b"%d" % number], expected=0) == 1
        assert await responses.get(tenant, "resp_1") is None
        await responses.put(tenant, StoredResponse("resp_1", b"%d" % number))
    for number, tenant in enumerate(tenants):
        conversation, response = await conversations.get(tenant, "chat"), await responses.get(tenant, "resp_1")
        assert conversation is not None
        assert conversation.items == (b"%d" % number,)
        assert response is not None
        assert response.body == b"%d" % number
    await conversations.delete("acme", "chat")
    assert await conversations.get("acme2", "chat") is not None


async def test_too_much_is_refused_and_nothing_is_dropped(conversations: Conversations) -> None:
    await conversations.append("acme", "chat", [HELLO] * 9)
    with pytest.raises(TooLarge, match="would have 11 items, the limit is 10"):
        await conversations.append("acme", "chat", [HELLO, HELLO])
    with pytest.raises(TooLarge, match=r"would have \d+ bytes, the limit is 40000"):
        await conversations.append("acme", "chat", [b"x" * 40_000])
    with pytest.raises(TooLarge):
        await conversations.append("acme", "new", [HELLO] * 11)
    assert await conversations.get("acme", "new") is None
    conversation = await conversations.get("acme", "chat")
    assert conversation is not None
    assert conversation.items == (HELLO,) * 9


async def test_an_empty_conversation_can_be_made(conversations: Conversations) -> None:
    assert await conversations.append("acme", "chat", [], expected=0) == 1
    conversation = await conversations.get("acme", "chat")
    assert conversation is not None
    assert (conversation.version, conversation.items) == (1, ())


async def test_concurrent_turns_lose_nothing(conversations: Conversations) -> None:
    async def turn(number: int) -> None:
        while True:
            conversation = await conversations.get("acme", "chat")
            version = 0 if conversation is None else conversation.version
            try:
                await conversations.append("acme", "chat", [b"%d" % number], expected=version)
                return
            except Conflict:
                continue

    await asyncio.gather(*(turn(number) for number in range(10)))
    conversation = await conversations.get("acme", "chat")
    assert conversation is not None
    assert sorted(conversation.items) == [b"%d" % number for number in range(10)]
    assert conversation.version == 10


@pytest.mark.parametrize("id", ["", "a" * 65, "a b", "a/b", "ä", "a\n", "../x", "a\0"])
async def test_ids_are_plain(conversations: Conversations, id: str) -> None:
    for call in (conversations.get("acme", id), conversations.append("acme", id, []), conversations.delete("acme", id)):
        with pytest.raises(InvalidId, match="1 to 64 letters") as caught:
            await call
        assert caught.value.param == "conversation"


async def test_a_client_need_not_repeat_a_conflict(conversations: Conversations) -> None:
    with pytest.raises(Conflict) as caught:
        await conversations.append("acme", "chat", [], expected=1)
    assert (caught.value.status, caught.value.headers) == (409, {"x-should-retry": "false"})


async def test_a_megabyte_comes_back_whole(logs: LogStore) -> None:
    conversations = Conversations(logs, ConversationConfig())
    items = [b"%d " % number * 20_000 for number in range(10)]
    await conversations.append("acme", "chat", items)
    conversation = await conversations.get("acme", "chat")
    assert conversation is not None
    assert conversation.items == tuple(items)


BOMB = ZSTD + zstandard.ZstdCompressor().compress(bytes(100 << 20))


@pytest.mark.parametrize(
    "stored", [b"\x00", b"\x07abc", b"\x00\xc1", b"\x00\x91\xc0", ZSTD + b"nonsense", BOMB], ids=lambda data: data[:8].hex()
)
async def test_what_nobody_wrote_is_an_error_and_no_crash(
    logs: LogStore,
    conversations: Conversations,
    open_logs: Callable[[str], LogStore],
    responses: StoredResponses,
    stored: bytes,
) -> None:
    await logs.put(scoped_key("acme", "conversation", b"chat"), Segment(stored, 1, 1), ttl_s=100)
    with pytest.raises(ContextUnavailable, match="conversation cannot be read: what is stored of it is damaged"):
        await conversations.get("acme", "chat")
    await open_logs("responses").put(scoped_key("acme", "response", b"resp_1"), Segment(stored, 1, 1), ttl_s=100)
    with pytest.raises(ContextUnavailable, match="response cannot be read"):
        await responses.get("acme", "resp_1")


async def test_a_lower_bound_leaves_older_conversations_readable(logs: LogStore) -> None:
    await Conversations(logs, CONFIG).append("acme", "chat", [LONG, LONG])
    small = Conversations(logs, ConversationConfig(max_items=1, max_bytes=1024))
    conversation = await small.get("acme", "chat")
    assert conversation is not None
    assert conversation.items == (LONG, LONG)
    with pytest.raises(TooLarge):
        await small.append("acme", "chat", [HELLO])


async def test_a_response_comes_back_with_the_items_of_its_whole_chain(responses: StoredResponses) -> None:
    first = StoredResponse("resp_1", b'{"id":"resp_1"}', (HELLO, LONG))
    second = StoredResponse("resp_2", b'{"id":"resp_2"}', (HELLO, LONG, LONG), previous="resp_1")
    await responses.put("acme", first)
    await responses.put("acme", second)
    assert await responses.delete("acme", "resp_1") is True
    assert await responses.delete("acme", "resp_1") is False
    assert await responses.get("acme", "resp_1") is None
    assert await responses.get("acme", "resp_2") == second


async def test_a_response_can_be_replaced(responses: StoredResponses) -> None:
    await responses.put("acme", StoredResponse("resp_1", b'{"status":"in_progress"}'))
    done = StoredResponse("resp_1", b'{"status":"completed"}', (HELLO,))
    await responses.put("acme", done)
    assert await responses.get("acme", "resp_1") == done


async def test_a_response_that_is_too_large_is_refused(responses: StoredResponses) -> None:
    with pytest.raises(TooLarge, match=r"stored response would have \d+ bytes"):
        await responses.put("acme", StoredResponse("resp_1", b"x" * 40_000, (HELLO,)))
    with pytest.raises(TooLarge, match="stored response would have 11 items"):
        await responses.put("acme", StoredResponse("resp_1", b"{}", (HELLO,) * 11))


async def test_a_response_under_another_ones_key_is_not_returned(
    responses: StoredResponses, open_logs: Callable[[str], LogStore]
) -> None:
    await responses.put("acme", StoredResponse("resp_1", b"{}"))
    store = open_logs("responses")
    log = await store.read(scoped_key("acme", "response", b"resp_1"))
    assert log is not None
    await store.put(scoped_key("acme", "response", b"resp_2"), Segment(log.segments[0], 1, 1), ttl_s=100)
    with pytest.raises(ContextUnavailable):
        await responses.get("acme", "resp_2")
