"""What followed the last time: the index against looking through the whole text."""

import sys

from hypothesis import given, settings
from hypothesis import strategies as st

from backends.engine.speculation.lookup import Lookup

texts = st.lists(st.integers(0, 3), max_size=60) | st.lists(st.integers(0, 12), max_size=200)


def by_looking_through(tokens: list[int], most: int) -> list[int]:
    """The newest of the longest matches of 2 to 8 tokens among the newest 16 places that share two."""
    end = len(tokens) - 1
    places = [i for i in range(end - 1, 0, -1) if tokens[i - 1 : i + 1] == tokens[end - 1 :]][:16] if end > 0 else []

    def common(place: int) -> int:
        return next((n for n in range(2, 8) if n > place or tokens[place - n] != tokens[end - n]), 8)

    if not places:
        return []
    best = max(places, key=common)
    going_on = list(tokens)
    while len(going_on) < len(tokens) + most:
        going_on.append(going_on[best + 1 + len(going_on) - len(tokens)])
    return going_on[len(tokens) :]


@settings(deadline=None)
@given(texts, st.integers(1, 10), st.lists(st.integers(1, 5), max_size=60))
def test_a_growing_text_is_answered_as_if_read_anew(text: list[int], most: int, jumps: list[int]) -> None:
    lookup, length = Lookup(), 0
    for jump in [*jumps, len(text)]:
        length = min(length + jump, len(text))
        tokens = text[:length]
        assert lookup.find(tokens, most) == by_looking_through(tokens, most)


def test_the_longest_match_wins_over_a_newer_one() -> None:
    text = [1, 2, 3, 4, 50, 9, 9, 3, 4, 60, 9, 1, 2, 3, 4]
    assert Lookup().find(text, 1) == [50]
    assert Lookup().find([*text[:-4], 8, 8, 3, 4], 2) == [60, 9]


def test_only_so_many_places_are_compared() -> None:
    """The best place stands behind newer ones that share two tokens."""
    for newer, expected in ((15, [50]), (16, [60])):
        assert Lookup().find([1, 2, 3, 50, *[8, 2, 3, 60] * newer, 1, 2, 3], 1) == expected


def test_a_repetition_is_continued_beyond_the_end() -> None:
    assert Lookup().find([1, 2, 3, 1, 2, 3, 1, 2], 7) == [3, 1, 2, 3, 1, 2, 3]


def test_a_long_prompt_is_taken_in_bit_by_bit() -> None:
    text = [7, 8, 9, *range(100, 30_100), 7, 8]
    lookup = Lookup()
    found = [lookup.find(text, 1) for _ in range(9)]
    assert found[0] == [9]  # its beginning is known at once
    assert [] not in found
    assert lookup.find([*text, 30_098, 30_099], 1) == [7]
    fresh = Lookup()
    assert fresh.find([*text, 30_098, 30_099], 1) == []


def test_memory_is_bounded_whatever_the_text() -> None:
    lookup, text = Lookup(), list(range(150_000))
    for _ in range(40):
        lookup.find(text, 1)
    size = sys.getsizeof(lookup._newest) + sys.getsizeof(lookup._before)
    assert len(lookup._newest) <= 65_536
    assert size < 5_000_000
    assert lookup.find([*text, 149_000, 149_001], 2) == [149_002, 149_003]
