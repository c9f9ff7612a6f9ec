"""Silent streams: comments after the ping interval, the status held back until then, errors as events afterwards."""

from collections.abc import Iterator

import httpx
import openai
import pytest

from backends.fake import FakeBackend, FakeModel
from backends.fake_script import FakeReply
from tests.gateway.wire.conftest import Gateway
from tests.gateway.wire.raw import HI

CHAT = "/v1/chat/completions"
HALF_S = 0.5


@pytest.fixture(scope="module")
def quiet() -> Iterator[Gateway]:
    reply = (FakeReply(text="ab"),)
    backends = {
        "late": FakeBackend("late", FakeModel(replies=reply, token_delay_s=HALF_S)),
        "late-failure": FakeBackend("late-failure", FakeModel(token_delay_s=HALF_S, error="Failed", error_after_tokens=1)),
    }
    with Gateway(backends, ping_interval_s=0.1) as running:
        yield running


def body(gateway: Gateway, model: str, path: str = CHAT, **fields: object) -> list[str]:
    prompt = {"messages": HI} if path == CHAT else {"prompt": "x"}
    answer = httpx.post(gateway.url + path, json={"model": model, "stream": True} | prompt | fields, timeout=20)
    assert answer.status_code == 200
    return answer.text.removesuffix("\n\n").split("\n\n")


def test_pings_come_before_and_between_events(quiet: Gateway) -> None:
    frames = body(quiet, "late", n=2)
    assert frames[0] == ": ping"
    data = [frame for frame in frames if frame != ": ping"]
    assert '"delta":{"role"' in data[0]
    assert sum('"role"' in frame for frame in frames) == 2
    assert frames.count(": ping") >= 4
    assert frames[-1] == "data: [DONE]"
    content = [frame for frame in frames if '"content":"a"' in frame or '"content":"b"' in frame]
    assert len(content) == 4
    assert all(frame == ": ping" or frame.startswith("data: ") for frame in frames)


def test_a_completion_stream_begins_with_a_ping(quiet: Gateway) -> None:
    assert body(quiet, "late", "/v1/completions")[0] == ": ping"


def test_an_error_after_the_first_ping_is_an_event(quiet: Gateway) -> None:
    frames = body(quiet, "late-failure")
    assert '"code":"engine_failed"' in frames[-2]
    assert frames[-1] == "data: [DONE]"


def test_the_sdk_reads_streams_with_pings(quiet: Gateway) -> None:
    with openai.OpenAI(base_url=f"{quiet.url}/v1", api_key="none", max_retries=0) as client:
        with client.chat.completions.stream(model="late", messages=HI) as stream:
            assert stream.get_final_completion().choices[0].message.content == "ab"
        chunks = client.chat.completions.create(model="late-failure", messages=HI, stream=True)
        with pytest.raises(openai.APIError):
            list(chunks)


def test_interval_zero_sends_no_pings_and_holds_the_status_back() -> None:
    model = FakeModel(token_delay_s=HALF_S, error="Failed", error_after_tokens=0)
    backends = {"late": FakeBackend("late", FakeModel(replies=(FakeReply(text="a"),), token_delay_s=HALF_S))}
    with Gateway(backends | {"f": FakeBackend("f", model)}, ping_interval_s=0) as own:
        assert all(frame.startswith("data: ") for frame in body(own, "late"))
        assert httpx.post(own.url + CHAT, json={"model": "f", "messages": HI, "stream": True}).status_code == 502


def test_a_stream_that_the_closing_backend_ends_says_so(quiet: Gateway) -> None:
    backend = FakeBackend("late", FakeModel(replies=(FakeReply(text="a" * 100),), token_delay_s=0.05))
    with (
        Gateway({"late": backend}, ping_interval_s=0.1) as own,
        httpx.stream("POST", own.url + CHAT, json={"messages": HI, "stream": True}, timeout=20) as answer,
    ):
        parts = answer.iter_raw()
        seen = next(parts)
        own.call(backend.close())
        text = (seen + b"".join(parts)).decode()
        assert '"code":"model_unavailable"' in text
        assert text.endswith("data: [DONE]\n\n")
