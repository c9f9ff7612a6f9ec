"""What an upstream's refusals mean here, and what of them a client is told."""

import socket

import pytest

from backends.errors import (
    BackendError,
    ContextOverflow,
    Failed,
    ModelNotFound,
    Overloaded,
    Rejected,
    TimedOut,
    Unavailable,
)
from backends.remote.backend import RemoteBackend
from backends.remote.config import RemoteConfig
from backends.remote.errors import from_status, retry_after
from tests.backends.remote.rig import Rig, forwarded, play
from tests.upstream import Reset, answer, json_answer


def said(status: int, body: bytes = b"", **headers: str) -> BackendError:
    return from_status(status, {name.replace("_", "-"): value for name, value in headers.items()}, body)


@pytest.mark.parametrize(
    "body",
    [
        b'{"error":{"message":"top_p is wrong","type":"x","param":"top_p","code":null}}',
        b'{"error":"top_p is wrong"}',
        b'{"detail":"top_p is wrong"}',
        b'{"message":"top_p is wrong"}',
        b'{"object":"error","message":"top_p is wrong","type":"BadRequestError","param":"top_p","code":400}',
        b"top_p is wrong",
    ],
)
def test_the_message_is_kept_whatever_shape_it_came_in(body: bytes) -> None:
    error = said(400, body)
    assert type(error) is Rejected
    assert error.message == "top_p is wrong"
    assert error.code == "invalid_value"
    assert error.param == ("top_p" if b'"param"' in body else None)


def test_a_list_of_complaints_is_kept_as_text() -> None:
    assert "field required" in said(422, b'{"detail":[{"loc":["body","messages"],"msg":"field required"}]}').message


def test_a_page_of_a_proxy_is_not_repeated() -> None:
    error = said(502, b"<html><body>nginx/1.2 at 10.0.0.1</body></html>")
    assert (type(error), error.message) == (Failed, "The upstream server answered 502.")


def test_long_messages_and_words_are_cut() -> None:
    error = said(400, b'{"error":{"message":"' + b"x" * 10**6 + b'","code":"' + b"c" * 1000 + b'"}}')
    assert len(error.message) == 500
    assert len(error.code) <= 128


@pytest.mark.parametrize(
    "body", [b"", b"{}", b"[]", b"null", b"{broken", b"\xff\xfe", b'{"error":[1]}', b'{"error":{"message":7}}', b"[" * 9000]
)
@pytest.mark.parametrize("status", [301, 400, 401, 404, 409, 429, 500, 503])
def test_no_body_is_too_odd(status: int, body: bytes) -> None:
    assert said(status, body).message


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b'{"error":{"message":"no","code":"context_length_exceeded"}}', 400),
        (b'{"error":{"message":"This model\'s maximum context length is 4096 tokens."}}', 400),
        (
            b'{"error":{"code":400,"message":"it exceeds the available context size","type":"exceed_context_size_error"}}',
            400,
        ),
        (b'{"message":"The input (9000 tokens) is longer than the model\'s context length (4096 tokens)."}', 400),
        (b'{"error":"`inputs` tokens + `max_new_tokens` must be <= 4096. Given: 5000","error_type":"validation"}', 422),
        (b'{"error":{"message":"prompt is too long: 9 tokens > 8 maximum"}}', 413),
    ],
)
def test_a_context_overflow_is_recognised(body: bytes, status: int) -> None:
    error = said(status, body)
    assert type(error) is ContextOverflow
    assert error.code == "context_length_exceeded"


@pytest.mark.parametrize(
    ("status", "body", "kind", "code"),
    [
        (413, b"", Rejected, "request_too_large"),
        (401, b'{"error":{"message":"Incorrect API key provided: sk-ours"}}', Unavailable, "upstream_auth_failed"),
        (403, b"", Unavailable, "upstream_auth_failed"),
        (404, b'{"error":{"message":"The model `x` does not exist."}}', ModelNotFound, "model_not_found"),
        (404, b'{"detail":"Not Found"}', Unavailable, "upstream_not_found"),
        (402, b"", Unavailable, "upstream_quota_exceeded"),
        (429, b'{"error":{"message":"m","code":"insufficient_quota"}}', Unavailable, "upstream_quota_exceeded"),
        (408, b"", TimedOut, "upstream_timeout"),
        (504, b"", TimedOut, "upstream_timeout"),
        (429, b"", Overloaded, "upstream_overloaded"),
        (529, b"", Overloaded, "upstream_overloaded"),
        (503, b'{"error":{"message":"full","code":"engine_overloaded"}}', Overloaded, "upstream_overloaded"),
        (503, b"", Unavailable, "upstream_unavailable"),
        (500, b"", Failed, "upstream_error"),
        (302, b"", Failed, "upstream_protocol_error"),
        (409, b"", Failed, "upstream_error"),
    ],
)
def test_each_status_has_its_class(status: int, body: bytes, kind: type, code: str) -> None:
    error = said(status, body)
    assert (type(error), error.code) == (kind, code)
    assert "sk-ours" not in error.message


@pytest.mark.parametrize(
    ("headers", "wait_s"),
    [
        ({"retry-after": "2.5"}, 2.5),
        ({"retry-after-ms": "250", "retry-after": "9"}, 0.25),
        ({"retry-after": "1e9"}, 3600.0),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "-1"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}, None),
        ({"retry-after": "Wed, 21 Oct 2099 07:28:00 GMT"}, 3600.0),
        ({}, None),
    ],
)
def test_the_time_to_wait_is_read(headers: dict[str, str], wait_s: float | None) -> None:
    assert retry_after(headers) == wait_s


async def test_a_rate_limit_says_when_to_come_back(rig: Rig) -> None:
    backend, _ = await rig(json_answer({"error": {"message": "slow down"}}, 429, ("retry-after", "7")))
    for stream in (True, False):
        with pytest.raises(Overloaded, match="slow down") as caught:
            await backend.forward(forwarded(stream))
        assert caught.value.retry_after_s == 7
    with pytest.raises(Overloaded):
        await play(backend)


async def test_a_huge_error_body_is_not_read_to_its_end(rig: Rig) -> None:
    backend, _ = await rig([b"HTTP/1.1 500 X\r\n\r\n", *[b"x" * 65536] * 1000])
    with pytest.raises(Failed) as caught:
        await backend.forward(forwarded())
    assert len(caught.value.message) <= 500


async def test_an_unreachable_server_is_unavailable_and_its_address_not_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    backend = RemoteBackend("public", RemoteConfig(url=f"http://127.0.0.1:{port}/v1"))
    with pytest.raises(Unavailable) as caught:
        await backend.forward(forwarded())
    assert caught.value.code == "upstream_unreachable"
    assert str(port) not in caught.value.message
    assert (await backend.health()).state == "degraded"
    await backend.close()


async def test_a_reset_before_the_head_is_a_lost_connection(rig: Rig) -> None:
    backend, _ = await rig([Reset()])
    with pytest.raises(Failed) as caught:
        await backend.forward(forwarded(stream=False))
    assert caught.value.code == "upstream_connection_lost"


async def test_what_does_not_speak_http_is_a_protocol_error(rig: Rig) -> None:
    backend, _ = await rig([b"SSH-2.0-OpenSSH_9.2\r\n\r\n"])
    with pytest.raises(Failed) as caught:
        await backend.forward(forwarded(stream=False))
    assert caught.value.code == "upstream_protocol_error"


async def test_health_recovers_with_the_next_success(rig: Rig) -> None:
    ok = json_answer({"choices": [{"text": "a", "finish_reason": "stop"}]})
    backend, _ = await rig(answer(500, b"broken"), ok)
    with pytest.raises(Failed):
        await backend.forward(forwarded(stream=False))
    assert (await backend.health()).state == "degraded"
    await backend.forward(forwarded(stream=False))
    assert (await backend.health()).state == "ready"
