"""What is kept of responses: reading, continuing, deleting, and whose it is."""

from collections.abc import Callable
from typing import Any

import httpx
import openai
import pytest

from gateway.context.config import ConversationConfig
from gateway.store.errors import StoreDown
from tests.gateway.responses.conftest import Recorder, Server


def create(http: httpx.Client, **fields: Any) -> dict[str, Any]:
    answer = http.post("/v1/responses", json={"model": "plain", "input": "hi"} | fields)
    assert answer.status_code == 200, answer.text
    body: dict[str, Any] = answer.json()
    return body


def error_of(answer: httpx.Response) -> tuple[int, str, str]:
    error = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    return answer.status_code, error["code"], error["param"]


def test_a_response_is_stored_unless_told_otherwise(http: httpx.Client) -> None:
    stored = create(http)
    assert stored["store"] is True
    assert http.get(f"/v1/responses/{stored['id']}").json() == stored
    fleeting = create(http, store=False)
    assert fleeting["store"] is False
    assert error_of(http.get(f"/v1/responses/{fleeting['id']}")) == (404, "response_not_found", None)


def test_a_deleted_response_is_gone(sdk: openai.OpenAI) -> None:
    answer = sdk.responses.create(model="plain", input="hi")
    second = sdk.responses.create(model="plain", input="more", previous_response_id=answer.id)
    sdk.responses.delete(answer.id)
    for gone in (sdk.responses.retrieve, sdk.responses.delete):
        with pytest.raises(openai.NotFoundError):
            gone(answer.id)
    assert sdk.responses.create(model="plain", input="x", previous_response_id=second.id).output_text == "third"


def test_deleting_says_what_was_deleted(http: httpx.Client) -> None:
    stored = create(http)
    assert http.delete(f"/v1/responses/{stored['id']}").json() == {
        "id": stored["id"],
        "object": "response",
        "deleted": True,
    }


@pytest.mark.parametrize("id", ["resp_unknown", "no such id", "x" * 100, "conv_ä"])
def test_an_unknown_previous_response_is_not_found(http: httpx.Client, id: str) -> None:
    for stream in (False, True):
        body = {"model": "plain", "input": "hi", "previous_response_id": id, "stream": stream}
        answer = http.post("/v1/responses", json=body)
        assert error_of(answer) == (404, "previous_response_not_found", "previous_response_id")


def test_tenants_never_see_each_others_state(open_sdk: Callable[[str], openai.OpenAI]) -> None:
    ann, bob = open_sdk("ann"), open_sdk("bob")
    answer = ann.responses.create(model="plain", input="secret")
    conversation = ann.conversations.create()
    for attempt in (
        lambda: bob.responses.retrieve(answer.id),
        lambda: bob.responses.delete(answer.id),
        lambda: bob.responses.input_items.list(answer.id),
        lambda: bob.responses.create(model="plain", input="hi", previous_response_id=answer.id),
        lambda: bob.responses.create(model="plain", input="hi", conversation=conversation.id),
        lambda: bob.conversations.retrieve(conversation.id),
        lambda: bob.conversations.items.list(conversation.id),
        lambda: bob.conversations.items.create(conversation.id, items=[{"role": "user", "content": "x"}]),
        lambda: bob.conversations.delete(conversation.id),
    ):
        with pytest.raises(openai.NotFoundError):
            attempt()
    assert ann.responses.retrieve(answer.id).id == answer.id
    assert list(ann.conversations.items.list(conversation.id)) == []


def test_input_items_are_those_of_all_turns(sdk: openai.OpenAI) -> None:
    first = sdk.responses.create(model="plain", input="one")
    second = sdk.responses.create(model="plain", input=[{"role": "user", "content": "two"}], previous_response_id=first.id)
    newest = list(sdk.responses.input_items.list(second.id))
    assert [(item.role, item.content[0].text) for item in newest] == [
        ("user", "two"),
        ("assistant", "Hello, 世界!"),
        ("user", "one"),
    ]
    assert newest[1].id == first.output[0].id
    assert all(item.type == "message" and item.status == "completed" for item in newest)
    assert list(sdk.responses.input_items.list(second.id, limit=1)) == newest
    assert list(sdk.responses.input_items.list(second.id, order="asc")) == newest[::-1]


def test_a_conversation_grows_with_every_turn(sdk: openai.OpenAI, recorder: Recorder) -> None:
    conversation = sdk.conversations.create(items=[{"role": "system", "content": "be brief"}], metadata={"topic": "demo"})
    assert conversation.id.startswith("conv_")
    assert conversation.metadata == {"topic": "demo"}
    assert sdk.conversations.retrieve(conversation.id) == conversation
    answer = sdk.responses.create(model="recorder", input="one", conversation=conversation.id)
    assert answer.conversation.id == conversation.id
    list(sdk.responses.create(model="recorder", input="two", conversation={"id": conversation.id}, stream=True))
    assert [(message.role, message.text) for message in recorder.asked[1].prompt.messages] == [
        ("system", "be brief"),
        ("user", "one"),
        ("assistant", "Yes."),
        ("user", "two"),
    ]
    items = list(sdk.conversations.items.list(conversation.id, order="asc"))
    assert [item.type for item in items] == ["message", "message", "reasoning", "message", "message", "reasoning", "message"]
    (added,) = sdk.conversations.items.create(conversation.id, items=[{"role": "user", "content": "three"}]).data
    assert next(iter(sdk.conversations.items.list(conversation.id))).id == added.id
    deleted = sdk.conversations.delete(conversation.id)
    assert (deleted.id, deleted.deleted, deleted.object) == (conversation.id, True, "conversation.deleted")
    with pytest.raises(openai.NotFoundError) as unknown:
        sdk.responses.create(model="recorder", input="four", conversation=conversation.id)
    assert (unknown.value.code, unknown.value.param) == ("conversation_not_found", "conversation")


def test_pages_are_bounded_and_checked(http: httpx.Client) -> None:
    path = f"/v1/responses/{create(http)['id']}/input_items"
    for query, param in (("limit=0", "limit"), ("limit=101", "limit"), ("limit=x", "limit"), ("order=up", "order")):
        assert error_of(http.get(f"{path}?{query}")) == (400, "invalid_value", param)
    assert error_of(http.get(f"{path}?after=msg_unknown")) == (400, "invalid_value", "after")
    page = http.get(path).json()
    assert (page["object"], page["has_more"], page["first_id"]) == ("list", False, page["last_id"])


def test_a_stored_response_is_not_streamed(http: httpx.Client) -> None:
    answer = http.get(f"/v1/responses/{create(http)['id']}?stream=true")
    assert error_of(answer) == (400, "unsupported_value", "stream")


def test_nothing_is_kept_of_a_client_that_left(server: Server, http: httpx.Client) -> None:
    conversation = http.post("/v1/conversations", json={}).json()["id"]
    body = {"model": "slow", "input": "hi", "conversation": conversation, "stream": True, "max_output_tokens": 50}
    with http.stream("POST", "/v1/responses", json=body) as stream:
        next(stream.iter_bytes())
    server.until_idle("slow")
    assert http.get(f"/v1/conversations/{conversation}/items").json()["data"] == []


def test_what_does_not_fit_into_a_conversation_is_an_error_and_changes_nothing() -> None:
    with Server(config=ConversationConfig(max_items=3)) as server, httpx.Client(base_url=server.url, timeout=20) as http:
        conversation = http.post("/v1/conversations", json={"items": [{"role": "user", "content": "a"}] * 2}).json()["id"]
        body = {"model": "plain", "input": "hi", "conversation": conversation}
        assert error_of(http.post("/v1/responses", json=body)) == (400, "context_too_large", None)
        told = http.post("/v1/responses", json=body | {"stream": True}).text
        assert "event: error\n" in told
        assert "event: response.failed\n" in told
        assert "event: response.completed\n" not in told
        assert len(http.get(f"/v1/conversations/{conversation}/items").json()["data"]) == 2
        # A response that is too large to be stored is given all the same, and says so.
        large = create(http, input=[{"role": "user", "content": "a"}] * 4)
        assert (large["status"], large["store"]) == ("completed", False)


def test_a_store_that_is_down_loses_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    with Server() as server, httpx.Client(base_url=server.url, timeout=20) as http:
        first = create(http)

        async def down(*_: object) -> None:
            raise StoreDown("the disk is full")

        monkeypatch.setattr(server.database, "run", down)
        monkeypatch.setattr(server.database, "read", down)
        assert create(http)["store"] is False
        told = http.post("/v1/responses", json={"model": "plain", "input": "hi", "stream": True}).text
        assert '"store":false' in told.rsplit("event: response.completed", 1)[1]
        answer = http.post("/v1/responses", json={"model": "plain", "input": "hi", "previous_response_id": first["id"]})
        assert error_of(answer) == (503, "context_unavailable", None)
        assert answer.headers["retry-after"] == "1"
