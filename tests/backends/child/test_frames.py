"""Messages survive any cutting of the stream."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.child.frames import MAX_BYTES, BadFrame, FrameReader, frame


@given(st.lists(st.binary(max_size=300), max_size=20), st.randoms(use_true_random=False))
def test_any_cutting_of_the_stream_gives_the_same_messages(bodies: list[bytes], rng) -> None:
    stream = b"".join(map(frame, bodies))
    reader, received, at = FrameReader(), [], 0
    while at < len(stream):
        size = rng.randint(1, 40)
        received += reader.feed(stream[at : at + size])
        at += size
    assert received == bodies


def test_an_impossible_length_is_refused_before_anything_is_kept() -> None:
    with pytest.raises(BadFrame):
        list(FrameReader().feed((MAX_BYTES + 1).to_bytes(4, "little")))
