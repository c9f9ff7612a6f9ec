"""The streaming matcher against a naive model that sees one character at a time."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.errors import Rejected
from backends.text.stop import StopMatcher

_letters = st.text("ab.", min_size=1, max_size=5)


def _naive(text: str, stops: list[str]) -> tuple[str, str | None]:
    for end in range(1, len(text) + 1):
        found = [stop for stop in stops if text[:end].endswith(stop)]
        if found:
            stop = max(found, key=len)
            return text[: end - len(stop)], stop
    return text, None


def _held(text: str, stops: list[str]) -> int:
    return max((n for stop in stops for n in range(len(stop)) if text.endswith(stop[:n])), default=0)


@given(st.lists(_letters, max_size=4), st.lists(st.text("ab.", max_size=4)))
def test_any_split_matches_like_the_naive_model(stops: list[str], pieces: list[str]) -> None:
    matcher, shown, matched, seen = StopMatcher(stops), "", None, ""
    for piece in pieces:
        visible, matched = matcher.push(piece)
        shown += visible
        seen += piece
        if matched is not None:
            break
        assert len(seen) - len(shown) == _held(seen, stops)
    if matched is None:
        shown += matcher.flush()
    assert (shown, matched) == _naive("".join(pieces), stops)


def test_stop_string_split_over_tokens_is_never_visible() -> None:
    matcher = StopMatcher(["\n\nUser:"])
    shown = [matcher.push(piece) for piece in ("Fine.", "\n", "\nUs", "er", ": more")]
    assert shown == [("Fine.", None), ("", None), ("", None), ("", None), ("", "\n\nUser:")]


def test_the_beginning_of_a_stop_string_is_shown_when_the_answer_ends() -> None:
    matcher = StopMatcher(["\n\nUser:"])
    assert matcher.push("a\n\nUser") == ("a", None)
    assert matcher.flush() == "\n\nUser"


def test_a_false_start_is_shown_as_soon_as_it_cannot_match() -> None:
    matcher = StopMatcher(["aab"])
    assert matcher.push("aaa") == ("a", None)
    assert matcher.push("c") == ("aac", None)


def test_an_empty_stop_string_is_refused() -> None:
    with pytest.raises(Rejected) as caught:
        StopMatcher(["a", ""])
    assert caught.value.param == "stop"
