"""The incremental decoder against CPython's whole-string decoder."""

from hypothesis import given
from hypothesis import strategies as st

from backends.text.utf8 import Utf8Stream

_pieces = st.lists(st.one_of(st.binary(max_size=6), st.text(max_size=4).map(lambda text: text.encode("utf-8", "replace"))))


@given(_pieces)
def test_any_split_decodes_like_the_whole(pieces: list[bytes]) -> None:
    stream = Utf8Stream()
    text = "".join(stream.push(piece) for piece in pieces) + stream.flush()
    assert text == b"".join(pieces).decode("utf-8", "replace")


@given(st.text(), st.integers(1, 4))
def test_valid_text_never_shows_a_replacement_character(text: str, size: int) -> None:
    data = text.replace("\ufffd", "").encode("utf-8", "ignore")
    stream = Utf8Stream()
    out = "".join(stream.push(data[i : i + size]) for i in range(0, len(data), size)) + stream.flush()
    assert out == data.decode()
    assert "\ufffd" not in out


def test_only_the_incomplete_character_is_held_back() -> None:
    stream = Utf8Stream()
    assert stream.push("né".encode() + "🧑".encode()[:3]) == "né"
    assert stream.pending
    assert stream.push("🧑".encode()[3:] + b"x") == "🧑x"
    assert not stream.pending


def test_an_impossible_byte_is_shown_at_once_and_an_incomplete_end_at_flush() -> None:
    stream = Utf8Stream()
    assert stream.push(b"a\xff") == "a\ufffd"
    assert stream.push(b"\xe6\xbc") == ""
    assert stream.flush() == "\ufffd"
    assert stream.flush() == ""
