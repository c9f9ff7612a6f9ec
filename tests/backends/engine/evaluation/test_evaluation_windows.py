"""Which parts of a text are read."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.child.errors import LoadError
from backends.engine.evaluation.windows import MIN_WINDOW, cut_windows


@given(
    length=st.integers(MIN_WINDOW, 5000),
    window=st.integers(MIN_WINDOW, 600),
    most=st.integers(MIN_WINDOW, 3000),
    bos=st.sampled_from([None, 99_999]),
)
def test_windows_are_apart_and_spread_over_the_text(length: int, window: int, most: int, bos: int | None) -> None:
    cut = cut_windows("text", range(length), window=window, most=most, bos=bos)
    framing = 0 if bos is None else 1
    assert all(part[0] == bos for part in cut.windows if framing)
    bodies = [part[framing:] for part in cut.windows]
    assert all(body == list(range(body[0], body[0] + len(body))) for body in bodies)
    size = min(window - framing, length)
    assert {len(body) for body in bodies} == {size}
    gaps = {second[0] - first[-1] - 1 for first, second in pairwise(bodies)}
    assert len(gaps) <= 1
    assert min(gaps, default=0) >= 0
    assert bodies[0][0] == 0
    # As many as are asked for and fit, and the last one ends where the text does, but for what cannot be divided.
    assert len(bodies) == max(1, min(most // window, length // size))
    assert len(bodies) == 1 or length - bodies[-1][-1] - 1 < len(bodies) - 1


def test_a_text_that_says_nothing_is_refused_by_its_name() -> None:
    with pytest.raises(LoadError, match=r"'haiku.txt' gives a window of 17 tokens, at least 32 are needed"):
        cut_windows("haiku.txt", range(17), window=1024, most=4096, bos=None)


def test_the_digest_tells_other_tokens_and_other_windows() -> None:
    def digest(tokens: range, window: int) -> str:
        return cut_windows("text", tokens, window=window, most=200, bos=None).sha256()

    assert digest(range(200), 100) == digest(range(200), 100)
    assert len({digest(range(200), 100), digest(range(1, 201), 100), digest(range(200), 50)}) == 3
