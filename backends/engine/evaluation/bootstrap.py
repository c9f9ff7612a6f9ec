"""Intervals of means without assumptions about their distribution.

Source: Efron and Tibshirani, "An Introduction to the Bootstrap" (1993), section 13.3, the percentile interval. Neighbouring
tokens of a text are not independent, so the true intervals are somewhat wider.
"""

import torch

from backends.engine.evaluation.report import Interval

_REPETITIONS = 1000
_SEED = 0


def bootstrap_means(values: torch.Tensor) -> list[Interval]:
    """Find the mean of each row and its 95 % interval. The same values always give the same intervals.

    Args:
        values: [rows, n] float64; columns stay together when they are resampled, as they describe the same token.
    """
    rows, n = values.shape
    dice = torch.Generator().manual_seed(_SEED)
    means = torch.empty(_REPETITIONS, rows, dtype=values.dtype)
    for repetition in range(_REPETITIONS):
        means[repetition] = values[:, torch.randint(n, (n,), generator=dice)].mean(1)
    low, high = means.quantile(torch.tensor([0.025, 0.975], dtype=values.dtype), dim=0)
    return [Interval(*numbers) for numbers in torch.stack([values.mean(1), low, high], 1).tolist()]
