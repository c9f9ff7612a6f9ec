"""Drawing, against the definition in float64 and against the distribution that it must follow."""

from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from textbook import Row, distribution, penalised, possible_draws, surprise

from backends.engine.sampling.sampler import Chosen, sample
from backends.engine.sampling.state import Row as BatchRow
from backends.engine.sampling.state import RowState
from backends.types import Sampling

samplings = st.fixed_dictionaries(
    {"temperature": st.sampled_from([1e-4, 0.2, 0.7, 1.0, 2.0]), "seed": st.integers(0, 1000)},
    optional={
        "top_k": st.sampled_from([1, 3, 40, 64, 100, 10_000]),
        "top_p": st.sampled_from([0.95, 0.75, 0.5, 0.25, 0.01, 0.0]),
        "min_p": st.sampled_from([0.001, 0.05, 0.5, 1.0, 1.5]),
    },
).map(lambda fields: Sampling(**fields))
vocabularies = st.integers(1, 700)
rough = hnp.arrays(np.float32, vocabularies, elements=st.floats(-30, 30, width=32))
tied = hnp.arrays(np.float32, vocabularies, elements=st.sampled_from([0.0, 0.0, -0.0, 1.0, -1.0, 5.0]))
smooth = st.builds(
    lambda seed, vocab, width: np.random.default_rng(seed).normal(0, width, vocab).astype(np.float32),
    st.integers(0, 10_000),
    vocabularies,
    st.sampled_from([0.01, 1.0, 4.0]),
)


def tokens_along(row: torch.Tensor, sampling: Sampling, count: int) -> list[int]:
    """What one sequence draws at its first positions, if all of them have the same logits."""
    state = RowState(sampling, [], 0)
    rows = [BatchRow(position, state, range(position)) for position in range(count)]
    return [one.token for one in sample(row.repeat(count, 1), rows, lambda token: b"") if isinstance(one, Chosen)]


def tokens_of(logits: torch.Tensor, states: list[RowState]) -> list[int]:
    rows = [BatchRow(at, state) for at, state in enumerate(states)]
    chosen = sample(logits, rows, lambda token: b"")
    return [one.token for one in chosen if isinstance(one, Chosen)]


@settings(deadline=None, max_examples=250)
@given(rough | tied | smooth, st.lists(samplings, min_size=1, max_size=4))
def test_a_draw_is_the_textbooks(row: Row, batch: list[Sampling]) -> None:
    states = [RowState(sampling, [], 0) for sampling in batch]
    logits = torch.from_numpy(np.tile(row, (len(batch), 1)))
    tokens = tokens_of(logits, states)
    for token, state, s in zip(tokens, states, batch, strict=True):
        uniform = BatchRow(0, state).uniform
        is_filtered = s.top_k > 0 or s.top_p < 1 or s.min_p > 0
        assert token in possible_draws(row, s, uniform, 1e-9 if is_filtered else 1e-5)


def test_every_edge_of_the_filters_is_the_textbooks_in_a_large_vocabulary() -> None:
    """Peaked rows end among the candidates, flat ones far beyond."""
    random = np.random.default_rng(4)
    for width in (0.3, 2.0, 5.0):
        table = random.normal(0, width, (6, 5000)).astype(np.float32)
        for s in (
            Sampling(top_p=0.9, seed=1),
            Sampling(temperature=0.5, top_p=0.5, seed=2),
            Sampling(top_k=300, seed=3),
            Sampling(top_k=300, top_p=0.8, seed=4),
            Sampling(temperature=1.5, top_p=0.999, min_p=0.2, seed=5),
            Sampling(min_p=0.001, seed=6),
        ):
            states = [RowState(s, [], index) for index in range(len(table))]
            tokens = tokens_of(torch.from_numpy(table.copy()), states)
            for token, row, state in zip(tokens, table, states, strict=True):
                assert token in possible_draws(row, s, BatchRow(0, state).uniform, 1e-9)


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(temperature=1.0, seed=1),
        Sampling(temperature=0.6, seed=2),
        Sampling(temperature=0.7, top_k=5, seed=3),
        Sampling(temperature=1.3, top_p=0.6, seed=4),
        Sampling(temperature=1.0, min_p=0.1, seed=5),
        Sampling(temperature=0.9, top_k=50, top_p=0.9, min_p=0.02, seed=6),
        Sampling(temperature=0.8, top_p=0.95, min_p=0.05, logit_bias={3: 2.0}, seed=7),
    ],
    ids=range(7),
)
def test_frequencies_follow_the_distribution(sampling: Sampling) -> None:
    draws = 20_000
    size = 256 if RowState(sampling, [], 0).is_filtered else 900
    row = np.random.default_rng(3).normal(0, 2.5, size).astype(np.float32)
    probabilities = distribution(penalised(row, sampling, [], []), sampling)
    counts = Counter(tokens_along(torch.from_numpy(row), sampling, draws))
    assert set(counts) <= set(probabilities)
    assert surprise(counts, probabilities) > 1e-4


def test_frequencies_follow_the_distribution_where_the_filters_keep_many() -> None:
    """Beyond the candidates, each row is drawn by itself; so fewer draws, and classes of ten tokens."""
    row = np.random.default_rng(5).normal(0, 0.5, 384).astype(np.float32)
    sampling = Sampling(top_p=0.8, seed=8)
    tokens = tokens_along(torch.from_numpy(row), sampling, 2500)
    probabilities = distribution(row, sampling)
    assert set(tokens) <= set(probabilities)
    classes = {token: place // 10 for place, token in enumerate(probabilities)}
    expected: Counter[int] = Counter()
    for token, probability in probabilities.items():
        expected[classes[token]] += probability
    assert surprise(Counter(classes[token] for token in tokens), expected) > 1e-4


def test_forbidden_tokens_are_never_drawn() -> None:
    row = np.full(1000, -np.inf, np.float32)
    row[[3, 700]] = [0.0, -1.0]
    for s in (
        Sampling(seed=1),
        Sampling(seed=1, top_k=40),
        Sampling(seed=1, top_k=200, top_p=0.9),
        Sampling(seed=1, top_p=0.99),
        Sampling(seed=1, min_p=1e-6),
    ):
        assert set(tokens_along(torch.from_numpy(row), s, 40)) == {3, 700}


@pytest.mark.parametrize("vocab", [8, 64, 128, 400])
@pytest.mark.parametrize("share", [0.125, 0.25, 0.5, 0.875])
def test_top_p_is_content_with_exactly_its_share_and_takes_equal_tokens_by_id(vocab: int, share: float) -> None:
    tokens = tokens_along(torch.zeros(vocab), Sampling(top_p=share, seed=1), 12 * vocab if vocab < 100 else 300)
    assert max(tokens) < share * vocab
    assert vocab > 100 or max(tokens) == share * vocab - 1


def test_a_temperature_next_to_zero_is_greedy() -> None:
    row = torch.from_numpy(np.random.default_rng(9).normal(0, 1, 500).astype(np.float32))
    for temperature in (5e-324, 1e-300, 1e-40, 1e-30):
        for s in (Sampling(temperature=temperature), Sampling(temperature=temperature, top_p=0.9, top_k=100)):
            assert set(tokens_along(row, s, 5)) == {int(row.argmax())}
