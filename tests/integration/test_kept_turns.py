"""A kept conversation takes up only turns that it can go on from, whatever an upstream answers."""

from pathlib import Path
from typing import Any

import pytest

from tests.integration.events import MODELS
from tests.integration.in_process import CHAT, serving
from tests.integration.remote_toml import one
from tests.upstream import json_answer, scripted

GOOD = {"index": 0, "message": {"role": "assistant", "content": "yes"}, "finish_reason": "stop"}
ONE_TRY = "\n[retries]\nattempts = 1\n"


def answer_of(choice: dict[str, Any]) -> dict[str, Any]:
    return {"id": "a", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}


@pytest.mark.parametrize("wrong", [{"text": "yes"}, {"message": "yes"}, {"message": None}])
async def test_an_answer_without_a_message_is_not_kept(tmp_path: Path, wrong: dict[str, Any]) -> None:
    bad = json_answer(answer_of({"index": 0, "finish_reason": "stop"} | wrong))
    async with (
        scripted(bad, json_answer(answer_of(GOOD)), checks=MODELS) as upstream,
        serving(tmp_path, one(upstream.url) + ONE_TRY) as it,
    ):
        refused = await it.chat(x_baton_conversation="abc")
        assert refused.status_code == 502, refused.text
        assert refused.json()["error"]["code"] in ("upstream_protocol_error", "upstream_empty")
        assert (await it.chat(content="again", x_baton_conversation="abc")).status_code == 200
        assert [message["content"] for message in upstream.requests[-1].json()["messages"]] == ["again"]


@pytest.mark.parametrize("messages", [None, "hi", {}])
async def test_messages_of_a_wrong_type_are_refused_by_name(tmp_path: Path, messages: object) -> None:
    async with scripted(json_answer(answer_of(GOOD)), checks=MODELS) as upstream, serving(tmp_path, one(upstream.url)) as it:
        body = {"model": "chat", "messages": messages}
        refused = await it.http.post(CHAT, json=body, headers={"x-baton-conversation": "abc"})
        assert refused.status_code == 400
        assert (refused.json()["error"]["code"], refused.json()["error"]["param"]) == ("invalid_type", "messages")
        assert not upstream.requests
