"""One request with several attempts, and backends that do not keep their word."""

from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

import msgspec
import pytest

from backends.errors import Failed
from backends.fake import FakeBackend, FakeModel
from backends.fake_script import FakeReply
from backends.types import Delta, GenerateRequest
from gateway.call import Call
from gateway.context.config import ConversationConfig
from gateway.context.conversations import Conversations
from gateway.context.responses_store import StoredResponses
from gateway.context.sqlite_logs import SqliteLogs
from gateway.dispatch.answer import Answer
from gateway.routes.responses_asked import AskedResponse
from gateway.routes.responses_state import ResponsesState, create_conversation, get_conversation
from gateway.routing.deployment import Deployment
from gateway.routing.router import Router
from gateway.schema.responses import ResponseRequest
from gateway.store.sqlite import Database


class EndsEarly(FakeBackend):
    """Never says how it ended."""

    async def generate(self, request: GenerateRequest) -> AsyncGenerator[Delta]:
        yield Delta(text="Hel", tokens=3)


@pytest.fixture
async def state() -> AsyncIterator[ResponsesState]:
    database, config = Database(":memory:"), ConversationConfig()
    yield ResponsesState(
        StoredResponses(SqliteLogs(database, "responses", max_bytes=1 << 30), config),
        Conversations(SqliteLogs(database, "conversations", max_bytes=1 << 30), config),
    )
    await database.close()


def deployments() -> dict[str, Deployment]:
    backends = {name: FakeBackend(name, FakeModel(replies=(FakeReply(text=name),))) for name in ("a", "b")}
    return Router({}, {**backends, "early": EndsEarly("early", FakeModel())}).deployments


async def asked_in(state: ResponsesState, **fields: Any) -> AskedResponse:
    body = ResponseRequest(input="hi", **fields)
    return await AskedResponse.read(body, Call("i", "responses", "a"), state, by_prefix=True)


async def drain(answer: Answer) -> bytes:
    data = answer.first
    while not answer.ended:
        data += await answer.next()
    await answer.aclose()
    return data


@pytest.mark.parametrize("stream", [True, False])
async def test_of_two_attempts_one_is_kept(state: ResponsesState, stream: bool) -> None:
    id = await create_conversation(state, "", (), {})
    asked = await asked_in(state, conversation=id)
    known = deployments()
    first, second = [await asked.open(known[name], stream=stream) for name in ("a", "b")]
    await asked.choose(second)
    assert b"b" in await drain(second)
    await drain(first)
    kept = [msgspec.json.decode(item) for item in (await get_conversation(state, "", id)).items]
    assert [item["content"][0]["text"] for item in kept] == ["hi", "b"]


@pytest.mark.parametrize("stream", [True, False])
async def test_an_answer_without_an_end_is_a_failure_and_is_not_kept(state: ResponsesState, stream: bool) -> None:
    id = await create_conversation(state, "", (), {})
    asked = await asked_in(state, conversation=id)
    with pytest.raises(Failed, match="ended its answer without saying so"):
        await drain(await asked.open(deployments()["early"], stream=stream))
    assert (await get_conversation(state, "", id)).items == ()


async def test_the_call_learns_what_limits_and_routing_need(state: ResponsesState) -> None:
    call = Call("i", "responses", "a")
    body = ResponseRequest(input="x" * 4000, max_output_tokens=7, prompt_cache_key="k")
    await AskedResponse.read(body, call, state, by_prefix=True)
    assert (call.max_tokens, call.session) == (7, "k")
    assert 1000 <= call.prompt_tokens <= 1100
    assert len(call.prefix) >= 8
