"""Intervals of means by resampling."""

import pytest
import torch

from backends.engine.evaluation.bootstrap import bootstrap_means


def _values(*shape: int) -> torch.Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(4))


def test_many_values_have_the_interval_of_the_normal_distribution() -> None:
    values = 3 * _values(1, 4000) + 1
    (interval,) = bootstrap_means(values)
    error = float(values.std()) / 4000**0.5
    assert interval.mean == pytest.approx(float(values.mean()))
    assert interval.low == pytest.approx(interval.mean - 1.96 * error, abs=0.15 * error)
    assert interval.high == pytest.approx(interval.mean + 1.96 * error, abs=0.15 * error)


def test_the_same_values_have_the_same_interval() -> None:
    assert bootstrap_means(_values(2, 50)) == bootstrap_means(_values(2, 50))


def test_rows_are_resampled_together() -> None:
    values = _values(1, 80)
    first, second = bootstrap_means(torch.cat([values, 2 * values + 1]))
    expected = (2 * first.mean + 1, 2 * first.low + 1, 2 * first.high + 1)
    assert (second.mean, second.low, second.high) == pytest.approx(expected)


def test_a_rare_event_has_an_interval_on_one_side() -> None:
    values = torch.zeros(1, 500, dtype=torch.float64)
    values[0, 7] = 1
    (interval,) = bootstrap_means(values)
    assert interval.low == 0 < interval.mean == 0.002 < interval.high < 0.01
