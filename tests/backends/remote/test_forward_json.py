"""Answers that are no streams, passed on; and what of both heads is passed on."""

import gzip
import zlib

import pytest

from backends.errors import Failed, TimedOut, Unsupported
from backends.protocol import Forwarder
from backends.types import Usage
from tests.backends.remote.rig import ROLE, STOP, Rig, chunk, events, forward, forwarded
from tests.upstream import STREAM_HEAD, Bytewise, Close, Pause, answer, event, json_answer, stream

CHOICE = {"index": 0, "message": {"role": "assistant", "content": "é漢🧑‍🚀\u2028"}, "finish_reason": "stop"}
ANSWER = {
    "id": "c1",
    "model": "public",
    "choices": [CHOICE],
    "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5},
    "new_field": {"model": "kept", "x": [1.0]},
}


async def test_a_body_passes_byte_for_byte_with_what_it_says(rig: Rig) -> None:
    backend, _ = await rig(script := json_answer(ANSWER))
    assert isinstance(backend, Forwarder)
    got = await backend.forward(forwarded(stream=False))
    assert script[0].endswith(b"\r\n\r\n" + got.first)
    assert await got.next() == b""
    assert (got.stream, got.status, got.saw_output, got.output_events) == (False, 200, True, 1)
    assert (got.usage, got.finish) == (Usage(3, 2), "stop")


async def test_one_byte_per_write_changes_nothing(rig: Rig) -> None:
    script = json_answer(ANSWER)
    backend, _ = await rig([Bytewise(script[0])])
    assert script[0].endswith(b"\r\n\r\n" + await forward(backend, forwarded(stream=False)))


async def test_the_model_is_called_by_its_public_name(rig: Rig) -> None:
    backend, upstream = await rig(json_answer(ANSWER | {"model": "theirs"}))
    body = await forward(backend, forwarded(stream=False))
    assert body == json_answer(ANSWER)[0].partition(b"\r\n\r\n")[2]
    assert upstream.requests[0].json()["model"] == "theirs"


@pytest.mark.parametrize("path", ["/chat/completions", "/completions", "/embeddings", "/rerank"])
async def test_what_a_model_cannot_do_is_refused_without_asking(rig: Rig, path: str) -> None:
    """A 404 of the upstream would count against it, so that clients could open its breaker."""
    backend, upstream = await rig(json_answer(ANSWER), capabilities=("responses",))
    with pytest.raises(Unsupported, match="no capability"):
        await backend.forward(forwarded(stream=False, path=path))
    assert not upstream.requests


@pytest.mark.parametrize(
    ("path", "body", "usage"),
    [
        ("/embeddings", {"data": [{"index": 0, "embedding": [0.5] * 3000}], "usage": {"prompt_tokens": 4}}, Usage(4)),
        ("/rerank", {"results": [{"index": 0, "relevance_score": 0.5}], "usage": {"total_tokens": 6}}, Usage(6)),
        ("/responses", {"id": "resp_1", "status": "completed", "usage": {"input_tokens": 1, "output_tokens": 2}}, Usage(1, 2)),
        ("/completions", {"choices": [{"text": "a", "finish_reason": "length"}]}, None),
    ],
)
async def test_every_endpoint_is_passed_on(rig: Rig, path: str, body: dict[str, object], usage: Usage | None) -> None:
    backend, upstream = await rig(script := json_answer(body), capabilities=("completion", "embedding", "rerank"))
    got = await backend.forward(forwarded(stream=False, path=path))
    assert script[0].endswith(b"\r\n\r\n" + got.first)
    assert got.usage == usage
    assert upstream.requests[0].path == f"/v1{path}"


@pytest.mark.parametrize(
    ("script", "code", "message"),
    [
        (answer(200, b"<html>hello</html>", kind="text/html"), "upstream_protocol_error", "answered 200 with text/html"),
        (answer(200, b"{broken"), "upstream_protocol_error", "no JSON object"),
        (answer(200, b"[1]"), "upstream_protocol_error", "no JSON object"),
        (json_answer({"error": {"message": "out of memory"}}), "upstream_error", "out of memory"),
        (json_answer({"choices": []}), "upstream_empty", "without any output"),
        ([b"HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\n{", Close()], "upstream_protocol_error", "broke off"),
        (answer(200, b'{"a":"' + b"x" * 5000 + b'"}'), "upstream_protocol_error", "larger than 4096 bytes"),
        (answer(200, b"{}", ("content-encoding", "br")), "upstream_protocol_error", "encoding 'br'"),
        (answer(200, b"{}", ("content-encoding", "gzip")), "upstream_protocol_error", "decompressed"),
        (answer(200, gzip.compress(bytes(10**8)), ("content-encoding", "gzip")), "upstream_protocol_error", "200-fold"),
    ],
)
async def test_what_is_no_answer_is_raised(rig: Rig, script, code, message) -> None:
    backend, _ = await rig(script, max_response_bytes=4096)
    with pytest.raises(Failed, match=message) as caught:
        await backend.forward(forwarded(stream=False))
    assert caught.value.code == code
    assert (await backend.health()).running == 0


async def test_an_endless_body_is_cut(rig: Rig) -> None:
    head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n"
    backend, upstream = await rig([head, *[b"x" * 1000, Pause(0.001)] * 10_000], max_response_bytes=8192)
    with pytest.raises(Failed, match="larger than 8192 bytes"):
        await backend.forward(forwarded(stream=False))
    await upstream.gone.wait()


async def test_no_answer_in_time_is_a_timeout(rig: Rig) -> None:
    backend, upstream = await rig([Pause(60)], total_timeout_s=0.5)
    with pytest.raises(TimedOut, match=r"within 0\.5 s"):
        await backend.forward(forwarded(stream=False))
    await upstream.gone.wait()


async def test_a_body_that_stalls_is_a_timeout(rig: Rig) -> None:
    backend, _ = await rig([b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{", Pause(60)], total_timeout_s=0.5)
    with pytest.raises(TimedOut):
        await backend.forward(forwarded(stream=False))


RAW_DEFLATE = zlib.compressobj(wbits=-15)


@pytest.mark.parametrize(
    ("encoding", "compress"),
    [
        ("gzip", gzip.compress),
        ("deflate", zlib.compress),
        ("deflate", lambda data: RAW_DEFLATE.compress(data) + RAW_DEFLATE.flush()),
    ],
)
async def test_compressed_bodies_are_decompressed_and_not_called_so(rig: Rig, encoding: str, compress) -> None:
    plain = json_answer(ANSWER)[0].partition(b"\r\n\r\n")[2]
    backend, upstream = await rig(answer(200, compress(plain), ("content-encoding", encoding)))
    got = await backend.forward(forwarded(stream=False))
    assert got.first == plain
    assert {name for name, _ in got.headers} == {b"content-type"}
    assert upstream.requests[0].headers["accept-encoding"] == "identity"


async def test_a_compressed_stream_arrives_event_by_event(rig: Rig) -> None:
    packer = zlib.compressobj(wbits=31)
    parts = [event(ROLE), event(chunk({"content": "a"})), event(STOP) + b"data: [DONE]\n\n"]
    packed = [packer.compress(part) + packer.flush(zlib.Z_SYNC_FLUSH) for part in parts]
    head = STREAM_HEAD.replace(b"\r\n\r\n", b"\r\ncontent-encoding: gzip\r\n\r\n")
    backend, _ = await rig([head, *packed[:2], Pause(0.05), packed[2], Close()])
    got = await backend.forward(forwarded())
    assert got.first == parts[0] + parts[1]
    assert await got.next() == parts[2]


async def test_the_head_of_an_answer_is_filtered(rig: Rig) -> None:
    theirs = (
        ("Set-Cookie", "session=1"),
        ("Server", "uvicorn"),
        ("Date", "today"),
        ("X-Request-Id", "up-1"),
        ("x-ratelimit-remaining-tokens", "5"),
        ("X-Baton-Deployment", "theirs"),
        ("Access-Control-Allow-Origin", "*"),
        ("Keep-Alive", "timeout=5"),
        ("x-custom", "kept"),
    )
    backend, _ = await rig(json_answer(ANSWER, 200, *theirs))
    got = await backend.forward(forwarded(stream=False))
    assert sorted(got.headers) == [
        (b"content-type", b"application/json"),
        (b"x-custom", b"kept"),
        (b"x-upstream-request-id", b"up-1"),
    ]


async def test_only_our_own_and_the_named_headers_go_upstream(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UPSTREAM_KEY", "sk-ours")
    config = {"api_key_env": "UPSTREAM_KEY", "headers": {"X-Team": "a"}, "forward_headers": ("X-Trace",)}
    backend, upstream = await rig(stream(event(chunk({"content": "a"}, "stop"))), **config)
    assert len(events(await forward(backend))) == 1
    sent = upstream.requests[0].headers
    assert sent.pop("content-length").isdigit()
    assert sent.pop("host") == upstream.url.removeprefix("http://")
    assert sent == {
        "authorization": "Bearer sk-ours",
        "content-type": "application/json",
        "accept": "application/json, text/event-stream",
        "accept-encoding": "identity",
        "user-agent": "baton",
        "x-request-id": "req-1",
        "x-team": "a",
        "x-trace": "t1",
    }
