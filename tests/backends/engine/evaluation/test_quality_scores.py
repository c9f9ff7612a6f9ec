"""Scores of single tokens and their summary, beside the same formulas in plain float64."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.engine.evaluation.scores import TokenScores, compare, join, perplexity, summarise


def _logits(seed: int, rows: int, vocab: int, spread: float) -> torch.Tensor:
    return spread * torch.randn(rows, vocab, generator=torch.Generator().manual_seed(seed))


def _log_probabilities(logits: torch.Tensor) -> np.ndarray:
    numbers = logits.numpy().astype(np.float64)
    numbers -= numbers.max(1, keepdims=True)
    numbers -= np.log(np.exp(numbers).sum(1, keepdims=True))
    return numbers


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    vocab=st.integers(2, 700),
    spread=st.floats(0.01, 12),
    noise=st.sampled_from([1e-3, 0.05, 1.0, 8.0]),
)
def test_every_score_follows_its_formula(seed: int, vocab: int, spread: float, noise: float) -> None:
    reference = _logits(seed, 9, vocab, spread)
    logits = reference + _logits(seed + 1, 9, vocab, noise) + 40  # a shift of all logits changes no distribution
    targets = torch.randint(vocab, (9,), generator=torch.Generator().manual_seed(seed))
    scores = compare(reference, logits, targets)
    p, q = _log_probabilities(reference), _log_probabilities(logits)
    rows = np.arange(9)
    np.testing.assert_allclose(scores.reference_nll.numpy(), -p[rows, targets], rtol=1e-3, atol=3e-6)
    np.testing.assert_allclose(scores.nll.numpy(), -q[rows, targets], rtol=1e-3, atol=3e-6)
    np.testing.assert_allclose(scores.kl.numpy(), (np.exp(p) * (p - q)).sum(1), rtol=1e-3, atol=3e-6)
    right, other_right = p.argmax(1) == targets.numpy(), q.argmax(1) == targets.numpy()
    np.testing.assert_array_equal(scores.same_top.numpy(), p.argmax(1) == q.argmax(1))
    np.testing.assert_array_equal(scores.flipped.numpy(), right != other_right)


def test_a_model_beside_itself_is_exactly_the_same() -> None:
    logits = _logits(1, 50, 4000, 5)
    quality = summarise(compare(logits, logits.clone(), torch.arange(50)))
    assert (quality.kl.mean, quality.kl.high, quality.kl_p99, quality.same_top, quality.flips.high) == (0, 0, 0, 1, 0)
    assert quality.perplexity_ratio.mean == quality.perplexity_ratio.low == quality.perplexity_ratio.high == 1


def test_divergences_far_below_the_precision_of_probabilities_are_found() -> None:
    reference = _logits(2, 200, 50_000, 3)
    logits = reference + 3e-4 * _logits(3, 200, 50_000, 1)
    found = compare(reference, logits, torch.zeros(200, dtype=torch.int64)).kl.double().mean()
    p, q = _log_probabilities(reference), _log_probabilities(logits)
    true = (np.exp(p) * (p - q)).sum(1).mean()
    assert true < 1e-7
    assert float(found) == pytest.approx(true, rel=0.02)


def test_a_wrong_token_for_another_wrong_one_is_no_flip() -> None:
    reference = torch.tensor([[2.0, 1, 0], [2, 1, 0], [2, 1, 0], [1, 2, 0]])
    logits = torch.tensor([[1.0, 2, 0], [1, 2, 0], [2, 1, 0], [2, 1, 0]])
    scores = compare(reference, logits, torch.tensor([2, 0, 0, 0]))
    assert scores.same_top.tolist() == [0, 0, 1, 0]
    assert scores.flipped.tolist() == [0, 1, 0, 1]


def test_a_summary_is_over_all_tokens_of_all_parts() -> None:
    parts = [compare(_logits(i, 30, 60, 2), _logits(i + 9, 30, 60, 2), torch.arange(30)) for i in range(3)]
    scores = join(parts)
    quality = summarise(scores)
    nll, before = (torch.cat([getattr(part, name) for part in parts]).double() for name in ("nll", "reference_nll"))
    assert quality.perplexity == perplexity(nll) == pytest.approx(float(nll.mean().exp()))
    assert quality.perplexity_ratio.mean == pytest.approx(perplexity(nll) / perplexity(before))
    assert quality.perplexity_ratio.low < quality.perplexity_ratio.mean < quality.perplexity_ratio.high
    assert quality.kl_p99 == pytest.approx(np.percentile(scores.kl.double().numpy(), 99))
    assert quality.same_top == pytest.approx(float(scores.same_top.mean()))
    assert quality.flips.mean == pytest.approx(float(scores.flipped.mean()))


def test_an_even_guess_has_the_perplexity_of_its_vocabulary() -> None:
    scores: TokenScores = compare(torch.zeros(5, 37), torch.ones(5, 37), torch.arange(5))
    assert perplexity(scores.nll) == pytest.approx(37)
