"""Random numbers that are a function of key and position."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from backends.engine.sampling.uniform import Uniforms, key_of, philox

words = st.integers(0, 2**64 - 1)


@given(words.filter(bool), words, words)
def test_philox_gives_the_words_of_an_independent_implementation(counter: int, first: int, second: int) -> None:
    # numpy's generator steps its counter before it makes a block
    start = np.array([counter - 1, 0, 0, 0], np.uint64)
    other = np.random.Philox(key=np.array([first, second], np.uint64), counter=start)
    assert list(philox(counter, (first, second))) == other.random_raw(4).tolist()


def test_philox_gives_the_published_words() -> None:
    """The first of the known answers that come with Random123."""
    assert philox(0, (0, 0)) == (0x16554D9ECA36314C, 0xDB20FE9D672D0FDC, 0xD7E772CEE186176B, 0x7E68B68AEC7BA23B)


@given(st.lists(st.integers(0, 100), max_size=20))
def test_a_number_depends_on_its_position_and_not_on_what_was_asked_before(positions: list[int]) -> None:
    used = Uniforms(key_of(5, 1))
    assert [used.at(position) for position in positions] == [Uniforms((5, 1)).at(position) for position in positions]


def test_seeds_and_choices_have_numbers_of_their_own() -> None:
    def numbers(seed: int | None, index: int) -> tuple[float, ...]:
        uniforms = Uniforms(key_of(seed, index))
        return tuple(uniforms.at(position) for position in range(8))

    seeded = [numbers(seed, index) for seed in (0, 1, -1, 2**63, None, None) for index in (0, 1)]
    assert len(set(seeded)) == len(seeded)
    assert len(set(sum(seeded, ()))) == sum(map(len, seeded))
    assert numbers(-1, 0) == numbers(-1, 0)


def test_numbers_fill_the_unit_interval_evenly() -> None:
    uniforms = Uniforms((3, 0))
    drawn = np.array([uniforms.at(position) for position in range(20_000)])
    assert drawn.min() >= 0
    assert drawn.max() < 1
    counts, _ = np.histogram(drawn, bins=20, range=(0, 1))
    assert abs(counts - 1000).max() < 4.5 * 1000**0.5
