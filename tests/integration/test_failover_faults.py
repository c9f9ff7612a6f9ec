"""What upstreams do instead of an answer, and what becomes of it: another deployment, or an error that says what to do."""

import asyncio
import gzip
import json
from pathlib import Path

import pytest

from tests.integration.events import DONE, MODELS, STOP, chunk, completion, piece, text_of, whole
from tests.integration.in_process import Gateway, serving
from tests.integration.remote_toml import one, two
from tests.upstream import STREAM_HEAD, Bytewise, Close, Pause, Reset, Script, answer, event, json_answer, scripted, stream

ROLE = chunk({"role": "assistant", "content": ""})
GOOD = stream(ROLE, piece("from the second"), STOP, DONE)
LIMITED = json_answer({"error": {"message": "slow down", "code": "rate_limit_exceeded"}}, 429, ("retry-after", "7"))

BEFORE_THE_FIRST_TOKEN: dict[str, Script] = {
    "error event": stream(ROLE, event({"error": {"message": "out of memory", "code": 500}})),
    "reset": stream(ROLE, Reset()),
    "reset before the head": [Reset()],
    "end": stream(ROLE),
    "stall": stream(ROLE, Pause(60)),
    "stall before the head": [Pause(60)],
    "comments only": stream(ROLE, *[b": ping\n\n", Pause(0.05)] * 100),
    "500": json_answer({"error": {"message": "broken"}}, 500),
    "503": json_answer({"error": {"message": "loading"}}, 503),
    "HTML": answer(502, b"<html>Bad gateway</html>", kind="text/html"),
    "429": LIMITED,
}


@pytest.mark.parametrize("name", BEFORE_THE_FIRST_TOKEN)
async def test_break_before_the_first_token_is_answered_by_the_next_deployment(tmp_path: Path, name: str) -> None:
    async with (
        scripted(BEFORE_THE_FIRST_TOKEN[name], checks=MODELS) as first,
        scripted(GOOD, checks=MODELS) as second,
        serving(tmp_path, two(first.url, second.url, patience_s=0.5)) as it,
        asyncio.timeout(10),
    ):
        got = await it.chat(stream=True)
    assert got.status_code == 200, got.text
    assert text_of(got.content) == "from the second"
    assert (got.headers["x-baton-deployment"], got.headers["x-baton-attempts"]) == ("second", "2")
    assert (len(first.requests), len(second.requests)) == (1, 1)


@pytest.mark.parametrize("script", [json_answer({"error": {"message": "no"}}, 500), [Reset()], answer(200, b"[1]")])
async def test_whole_answer_that_breaks_is_given_by_the_next_deployment(tmp_path: Path, script: Script) -> None:
    async with (
        scripted(script, checks=MODELS) as first,
        scripted(whole("second"), checks=MODELS) as second,
        serving(tmp_path, two(first.url, second.url)) as it,
    ):
        got = await it.chat()
    assert got.json()["choices"][0]["message"]["content"] == "second"
    assert got.headers["x-baton-deployment"] == "second"


async def fails(it: Gateway, status: int, **fields: object) -> dict[str, str]:
    got = await it.chat(**fields)
    assert got.status_code == status, got.text
    error: dict[str, str] = got.json()["error"]
    return error


@pytest.mark.parametrize("streams", [True, False])
async def test_stall_without_another_deployment_is_a_504(tmp_path: Path, streams: bool) -> None:
    async with scripted([Pause(60)], checks=MODELS) as upstream:
        text = one(upstream.url, "total_timeout_s = 0.4", patience_s=0.2)
        async with serving(tmp_path, text) as it, asyncio.timeout(10):
            error = await fails(it, 504, stream=streams)
    assert error["code"] == "upstream_timeout"


async def test_rate_limit_without_another_deployment_tells_the_client_when_to_come_back(tmp_path: Path) -> None:
    async with scripted(LIMITED, checks=MODELS) as upstream, serving(tmp_path, one(upstream.url)) as it:
        got = await it.chat()
        again = await it.chat()
    assert (got.status_code, got.headers["retry-after"]) == (503, "7")
    assert got.json()["error"]["message"] == "slow down"
    # The pause is kept: the second request is refused here.
    assert (again.status_code, again.json()["error"]["code"]) == (503, "deployments_paused")
    assert 5 <= int(again.headers["retry-after"]) <= 7
    assert len(upstream.requests) == 1


async def test_rate_limited_deployment_is_left_alone_for_as_long_as_it_asked(tmp_path: Path) -> None:
    async with (
        scripted(LIMITED, checks=MODELS) as first,
        scripted(whole(), checks=MODELS) as second,
        serving(tmp_path, two(first.url, second.url)) as it,
    ):
        answers = [await it.chat() for _ in range(5)]
    assert [got.headers["x-baton-deployment"] for got in answers] == ["second"] * 5
    assert (len(first.requests), len(second.requests)) == (1, 5)


async def test_request_that_is_wrong_is_not_tried_elsewhere(tmp_path: Path) -> None:
    wrong = json_answer({"error": {"message": "no such role", "param": "messages[0].role", "code": "invalid_value"}}, 400)
    async with (
        scripted(wrong, checks=MODELS) as first,
        scripted(GOOD, checks=MODELS) as second,
        serving(tmp_path, two(first.url, second.url)) as it,
    ):
        error = await fails(it, 400, stream=True)
    assert (error["message"], error["param"]) == ("no such role", "messages[0].role")
    assert (len(first.requests), len(second.requests)) == (1, 0)


async def test_compressed_answer_is_read_by_the_client(tmp_path: Path) -> None:
    body = gzip.compress(json.dumps(completion("é漢🧑‍🚀" * 50)).encode())
    script = answer(200, body, ("content-encoding", "gzip"))
    async with scripted(script, checks=MODELS) as upstream, serving(tmp_path, one(upstream.url)) as it:
        got = await it.chat()
    assert got.json()["choices"][0]["message"]["content"] == "é漢🧑‍🚀" * 50
    assert "content-encoding" not in got.headers
    assert int(got.headers["content-length"]) == len(got.content)


async def test_compressed_stream_is_read_by_the_client(tmp_path: Path) -> None:
    body = gzip.compress(ROLE + piece("é漢🧑‍🚀") + STOP + DONE)
    head = STREAM_HEAD.replace(b"\r\n\r\n", b"\r\ncontent-encoding: gzip\r\n\r\n")
    async with scripted([head, Bytewise(body), Close()], checks=MODELS) as upstream, serving(tmp_path, one(upstream.url)) as it:
        got = await it.chat(stream=True)
    assert text_of(got.content) == "é漢🧑‍🚀"
    assert "content-encoding" not in got.headers


async def test_endless_answer_is_cut_off(tmp_path: Path) -> None:
    head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"
    endless = [head, *[b"4000\r\n" + b" " * 0x4000 + b"\r\n"] * 1000, Pause(60)]
    async with scripted(endless, checks=MODELS) as upstream, serving(tmp_path, one(upstream.url)) as it, asyncio.timeout(10):
        error = await fails(it, 502)
        await asyncio.wait_for(upstream.gone.wait(), 2)
    assert "65536 bytes" in error["message"]
