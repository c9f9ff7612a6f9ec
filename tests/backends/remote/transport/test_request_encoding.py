"""One request is one request: nothing in it can start another, and the length is true."""

from collections.abc import AsyncIterator

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.remote.transport.request import encode

URL = "http://upstream/v1"
LEGAL = [("host", "upstream")]


def made(headers: list[tuple[bytes, bytes]], content: bytes = b"", method: str = "POST") -> httpx.Request:
    """A request with exactly these headers."""
    return httpx.Request(method, URL, headers=headers, stream=httpx.ByteStream(content))


async def parts() -> AsyncIterator[bytes]:
    yield b"abc"
    yield b"de"


@pytest.mark.parametrize(
    "header",
    [
        (b"x", b"1\r\nevil: 1"),
        (b"x", b"1\nevil: 1"),
        (b"x", b"1\revil: 1"),
        (b"x", b"nul\0"),
        (b"x\r\ny", b"1"),
        (b"x: y", b"1"),
        (b"x ", b"1"),
        (b"", b"1"),
        (b"n\xc3\xa9", b"1"),
    ],
)
def test_header_that_is_none_is_refused(header: tuple[bytes, bytes]) -> None:
    with pytest.raises(httpx.LocalProtocolError):
        encode(made([(b"host", b"upstream"), header]))


def test_line_break_in_the_method_is_refused() -> None:
    with pytest.raises(httpx.LocalProtocolError):
        encode(httpx.Request("GET / HTTP/1.1\r\nx: 1\r\n\r\nGET", URL))


@pytest.mark.parametrize(
    ("headers", "content"),
    [
        ([(b"host", b"a"), (b"Host", b"b")], b""),
        ([], b""),
        ([(b"host", b"a"), (b"content-length", b"3")], b"abcd"),
        ([(b"host", b"a"), (b"content-length", b"5")], b"abcd"),
        ([(b"host", b"a"), (b"content-length", b"+4")], b"abcd"),
        ([(b"host", b"a"), (b"content-length", b"4"), (b"Content-Length", b"4")], b"abcd"),
        ([(b"host", b"a"), (b"content-length", b"4"), (b"transfer-encoding", b"chunked")], b"abcd"),
        ([(b"host", b"a"), (b"transfer-encoding", b"gzip, chunked")], b"abcd"),
        ([(b"host", b"a")], b"abcd"),
    ],
)
def test_headers_that_do_not_fit_the_body_are_refused(headers: list[tuple[bytes, bytes]], content: bytes) -> None:
    with pytest.raises(httpx.LocalProtocolError):
        encode(made(headers, content))


def test_known_body_is_chunked_when_the_headers_say_so() -> None:
    headers = [(b"host", b"a"), (b"Transfer-Encoding", b"chunked")]
    assert encode(made(headers, b"abc")).data.endswith(b"\r\n\r\n3\r\nabc\r\n0\r\n\r\n")
    assert encode(made(headers)).data.endswith(b"\r\n\r\n0\r\n\r\n")


@pytest.mark.parametrize(("length", "is_legal"), [("5", True), ("4", False), ("6", False)])
async def test_streamed_body_has_the_length_it_promised(length: str, is_legal: bool) -> None:
    message = encode(httpx.Request("POST", URL, content=parts(), headers={"content-length": length}))
    if is_legal:
        assert [frame async for frame in message.frames()] == [b"abc", b"de"]
    else:
        with pytest.raises(httpx.LocalProtocolError, match=length):
            assert [frame async for frame in message.frames()] != [b"abc", b"de"]


def test_synchronous_stream_is_refused() -> None:
    with pytest.raises(httpx.LocalProtocolError, match="synchronous"):
        encode(httpx.Request("POST", URL, content=iter([b"a"])))


@given(name=st.binary(max_size=8), value=st.binary(max_size=20), content=st.binary(max_size=50))
def test_whatever_is_sent_has_the_lines_it_should(name: bytes, value: bytes, content: bytes) -> None:
    headers = [(b"host", b"upstream"), (b"content-length", b"%d" % len(content)), (name, value)]
    try:
        data = encode(made(headers, content)).data
    except httpx.LocalProtocolError:
        return
    head, _, body = data.partition(b"\r\n\r\n")
    assert body == content
    lines = head.replace(b"\r\n", b"|CRLF|").replace(b"\r", b"|CRLF|").replace(b"\n", b"|CRLF|").split(b"|CRLF|")
    assert [line.partition(b":")[0] for line in lines[1:]] == [b"host", b"content-length", name]
