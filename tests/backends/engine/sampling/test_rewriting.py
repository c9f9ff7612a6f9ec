"""Masks, bans, bias and penalties of a whole batch, against one row and one token at a time."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from textbook import penalised

from backends.engine.sampling.history import History
from backends.engine.sampling.rewrite import rewrite
from backends.engine.sampling.state import Row, RowState
from backends.types import Sampling

VOCAB = 70
tokens = st.lists(st.integers(0, VOCAB - 1), max_size=30)
samplings = st.builds(
    Sampling,
    temperature=st.just(0.0),
    logit_bias=st.dictionaries(st.integers(0, VOCAB - 1), st.floats(-100, 100, width=32), max_size=3),
    repetition_penalty=st.sampled_from([1.0, 1.3, 0.5]),
    frequency_penalty=st.sampled_from([0.0, 0.7, -2.0]),
    presence_penalty=st.sampled_from([0.0, 1.1, -0.5]),
)


@settings(deadline=None)
@given(st.lists(st.tuples(samplings, tokens, tokens, tokens), max_size=4), st.integers(0, 2**31))
def test_penalties_of_a_batch_are_those_of_each_row(
    batch: list[tuple[Sampling, list[int], list[int], list[int]]], seed: int
) -> None:
    """`ahead` counts like tokens that were generated; rows may stand anywhere among the logits."""
    logits = np.random.default_rng(seed).normal(0, 4, (len(batch) + 1, VOCAB)).astype(np.float32)
    expected = logits.copy()
    rows = []
    for i, (sampling, prompt, generated, ahead) in enumerate(batch):
        state = RowState(sampling, prompt, 0)
        for token in generated:
            state.accept(token)
        at = len(batch) - i
        rows.append(Row(at, state, ahead))
        expected[at] = penalised(logits[at], sampling, prompt if sampling.repetition_penalty != 1 else [], generated + ahead)
    rewrite(torch.from_numpy(logits), rows)
    np.testing.assert_allclose(logits, expected, rtol=1e-5, atol=1e-4)


@given(tokens, tokens, tokens, tokens)
def test_looking_ahead_is_accepting_without_doing_it(
    prompt: list[int], generated: list[int], ahead: list[int], other: list[int]
) -> None:
    history, moved_on = History(prompt), History(prompt)
    for token in generated:
        history.accept(token)
        moved_on.accept(token)
    before = _counts(history)
    for token in ahead:
        moved_on.accept(token)
    assert _counts(history, ahead) == _counts(moved_on)
    assert _counts(history) == before
    _counts(history, other)
    assert _counts(history) == before


def _counts(history: History, ahead: list[int] | tuple[int, ...] = ()) -> dict[int, float]:
    ids, counts = history.table(ahead)
    assert len(set(ids.tolist())) == len(ids)
    return dict(zip(ids.tolist(), counts.tolist(), strict=True))


def test_a_history_outgrows_its_first_arrays() -> None:
    history = History([5])
    for token in range(500):
        history.accept(token)
    assert _counts(history) == dict.fromkeys(range(500), 1.0)


@pytest.mark.parametrize("words", [2, 3, 4])
def test_a_mask_forbids_what_its_bits_do_not_allow_and_all_behind_its_end(words: int) -> None:
    logits = torch.zeros(3, VOCAB)
    allowed = [np.random.default_rng(row).integers(0, 2**32, words, dtype=np.uint32) for row in (0, 1)]
    state = RowState(Sampling(temperature=0), [], 0)
    rewrite(logits, [Row(2, state, mask=allowed[0]), Row(1, state), Row(0, state, mask=allowed[1])])
    for row, mask in ((2, allowed[0]), (0, allowed[1])):
        bits = [i // 32 < words and bool(mask[i // 32] >> (i % 32) & 1) for i in range(VOCAB)]
        assert torch.isfinite(logits[row]).tolist() == bits
    assert logits[1].eq(0).all()


def test_banned_tokens_have_no_probability_whatever_the_bias() -> None:
    logits = torch.zeros(2, VOCAB)
    sampling = Sampling(temperature=0, logit_bias={4: 100.0}, repetition_penalty=2.0, presence_penalty=-2.0)
    rewrite(logits, [Row(1, RowState(sampling, [4], 0, banned=frozenset({4, 9})))])
    assert logits[1, [4, 9]].tolist() == [-np.inf, -np.inf]
    assert torch.isfinite(logits).sum() == 2 * VOCAB - 2


def test_the_prompt_counts_for_the_repetition_penalty_alone() -> None:
    logits = torch.tensor([[4.0, -4.0, 1.0]])
    sampling = Sampling(temperature=0, repetition_penalty=2.0, frequency_penalty=1.0, presence_penalty=1.0)
    rewrite(logits, [Row(0, RowState(sampling, [0, 1], 0))])
    assert logits.tolist() == [[2.0, -8.0, 1.0]]
