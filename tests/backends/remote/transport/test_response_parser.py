"""The same bytes are the same response, whatever pieces they come in."""

import httpx
from hypothesis import example, given
from hypothesis import strategies as st

from backends.remote.transport.parser import ResponseHead, ResponseParser

HEADS = [
    b"HTTP/1.1 200 OK\r\n",
    b"HTTP/1.0 200\r\nserver: a\r\n",
    b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 500 Oh No\r\nserver: \xc3\xa9 \r\nconnection: close\r\n",
    b"HTTP/1.1 103 Early\r\na: b\r\n\r\nHTTP/1.1 200 OK\r\n",
    b"HTTP/1.1 204 None\r\n",
    b"\r\nHTTP/1.1 404 Not Found\r\n",
]
BODIES = [
    b"content-length: 0\r\n\r\n",
    b"content-length: 5\r\n\r\nhello",
    b"transfer-encoding: chunked\r\n\r\n3\r\nabc\r\n10;ext=1\r\n0123456789abcdef\r\n0\r\ntrailer: 1\r\n\r\n",
    b"transfer-encoding: chunked\r\n\r\n3\r\nabc\r\nbroken",
    b"content-length: 5\r\ncontent-length: 5\r\n\r\nhello",
    b"\r\nuntil the end",
]
TAILS = [b"", b"x", b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"]


class Outcome:
    """What came of a response: compared piece by piece."""

    def __init__(self, pieces: list[bytes], *, is_head: bool, at_end: bool) -> None:
        parser = ResponseParser(max_head_bytes=1000, max_headers=10)
        chunks: list[bytes] = []
        parser.begin(chunks, is_head=is_head)
        self.error = ""
        try:
            for piece in pieces:
                parser.feed(piece)
            if at_end:
                parser.feed_eof()
        except httpx.RemoteProtocolError as error:
            self.error = str(error)
        self.head: ResponseHead | None = parser.head
        self.body = b"".join(chunks)
        self.is_complete = parser.is_complete
        self.can_reuse = parser.is_complete and parser.can_reuse

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Outcome) and vars(self) == vars(other)

    def __repr__(self) -> str:
        return repr(vars(self))


@given(
    head=st.sampled_from(HEADS),
    body=st.sampled_from(BODIES),
    tail=st.sampled_from(TAILS),
    cuts=st.sets(st.integers(1, 200), max_size=8) | st.just(set(range(200))),
    is_head=st.booleans(),
    at_end=st.booleans(),
)
@example(head=HEADS[0], body=BODIES[2], tail=b"", cuts=set(range(200)), is_head=False, at_end=False)
def test_any_split_of_the_bytes_gives_the_same_response(
    head: bytes, body: bytes, tail: bytes, cuts: set[int], is_head: bool, at_end: bool
) -> None:
    data = head + body + tail
    ends = [*sorted(cut for cut in cuts if 0 < cut < len(data)), len(data)]
    pieces = [data[start:end] for start, end in zip([0, *ends], ends, strict=False)]
    whole = Outcome([data], is_head=is_head, at_end=at_end)
    assert Outcome(pieces, is_head=is_head, at_end=at_end) == whole


def test_connection_is_only_good_without_a_surplus() -> None:
    parser = ResponseParser(max_head_bytes=1000, max_headers=10)
    for surplus, can_reuse in ((b"", True), (b"HTTP/1.1 200 OK\r\n\r\n", False)):
        parser.begin([], is_head=False)
        parser.feed(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok" + surplus)
        assert parser.is_complete
        assert parser.can_reuse is can_reuse


@given(st.binary(max_size=300))
def test_garbage_is_an_error_and_nothing_else(data: bytes) -> None:
    Outcome([b"HTTP/1.1 " + data], is_head=False, at_end=True)
    Outcome([data], is_head=False, at_end=True)
