"""Where an event ends, whatever line ends a server uses and wherever the network cuts."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.errors import Failed
from backends.remote.sse import Event, EventSplitter

FRAGMENTS = [
    "data: ",
    "data:",
    "data",
    "event: a",
    "id: 1",
    "retry: 5",
    ": ping",
    "é漢🧑‍🚀",
    "x\u2028y\u0085z",
    "\n",
    "\r\n",
    "\r",
    "{}",
    ":",
]
STREAMS = st.lists(st.sampled_from(FRAGMENTS), max_size=40).map(lambda parts: "".join(parts).encode())


def split(*pieces: bytes) -> list[Event]:
    splitter = EventSplitter(1 << 20)
    events = [event for piece in pieces for event in splitter.push(piece)]
    return events + splitter.finish()


def reference(stream: bytes) -> list[Event]:
    """The specification, line by line."""
    events, data, name = [], [], b""
    for line in [*stream.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n"), b""]:
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            data.append(value)
        elif field == b"event":
            name = value
        elif not line:
            if b"\n".join(data):
                events.append(Event(b"\n".join(data), name))
            data, name = [], b""
    return events


@given(STREAMS)
def test_events_are_those_of_the_specification(stream: bytes) -> None:
    assert split(stream) == reference(stream)


@given(STREAMS, st.lists(st.integers(0, 400), max_size=12))
def test_any_split_of_the_bytes_gives_the_same_events(stream: bytes, cuts: list[int]) -> None:
    edges = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    pieces = [stream[start:end] for start, end in pairwise(edges)]
    assert split(*pieces) == split(stream)


@given(STREAMS)
def test_one_byte_at_a_time_gives_the_same_events(stream: bytes) -> None:
    assert split(*(stream[i : i + 1] for i in range(len(stream)))) == split(stream)


def test_a_byte_order_mark_at_the_very_start_is_skipped() -> None:
    assert split(b"\xef\xbb\xbfdata: a\n\ndata: \xef\xbb\xbfb\n\n") == [Event(b"a", b""), Event(b"\xef\xbb\xbfb", b"")]


def test_an_event_beyond_the_bound_fails() -> None:
    splitter = EventSplitter(64)
    assert splitter.push(b"data: x\n\n" + b"data: y" * 9) == [Event(b"x", b"")]
    with pytest.raises(Failed, match="longer than 64 bytes"):
        splitter.push(b"data: y")


PLAIN = b'data: {"a":1}\n\n'


@pytest.mark.parametrize("piece", [PLAIN, PLAIN * 3, 'data: {"t":"é漢\u2028"}\n\n'.encode()])
def test_whole_events_of_one_json_object_are_plain(piece: bytes) -> None:
    assert EventSplitter(100).plain(piece) == piece


@pytest.mark.parametrize(
    "piece",
    [
        b"",
        PLAIN + b"data: [DONE]\n\n",
        PLAIN + b": ping\n\n" + PLAIN,
        b"id: 1\n" + PLAIN,
        PLAIN[:-1],
        PLAIN + b"data: {",
        PLAIN.replace(b"\n", b"\r\n"),
        PLAIN.replace(b"\n", b"\r"),
        b'data: {"a":\ndata: 1}\n\n',
        b'data: {"a":1}\nid: 7\n\n',
        b'data: {"a":1}\r: x\n\n',
        b'data: {"a":1}\n\nevent: x\ndata: {}\n\n',
        b'data:{"a":1}\n\n',
    ],
)
def test_anything_else_is_not_plain(piece: bytes) -> None:
    assert EventSplitter(100).plain(piece) == b""


def test_a_piece_inside_an_event_is_not_plain() -> None:
    splitter = EventSplitter(100)
    splitter.push(b"data: 1")
    assert splitter.plain(PLAIN) == b""


@given(STREAMS)
def test_plain_pieces_hold_exactly_the_events_that_splitting_finds(stream: bytes) -> None:
    # Fragments that look plain now and then; the check must never let a comment or a second field pass.
    piece = b'data: {"a":"' + stream.replace(b"\n", b"") + b'"}\n\n' + PLAIN
    if EventSplitter(1 << 20).plain(piece):
        assert b"".join(b"data: " + event.data + b"\n\n" for event in split(piece)) == piece
