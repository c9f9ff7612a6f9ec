"""The definition of sampling, as plainly as it can be written: sort everything, filter, normalise, sum. In float64."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping

import numpy as np
import numpy.typing as npt

from backends.types import Sampling

Row = npt.NDArray[np.float32]


def order(row: Row) -> npt.NDArray[np.int64]:
    """All ids, the largest logit first and equal ones by id."""
    return np.argsort(-row, kind="stable")


def distribution(row: Row, s: Sampling, nudge: float = 0.0) -> dict[int, float]:
    """Probabilities behind temperature, top-k, top-p and min-p, in descending order. `nudge` moves top-p a little."""
    ids = order(row)
    weights = np.exp((row[ids].astype(np.float64) - float(row.max())) / s.temperature)
    if s.top_k:
        ids, weights = ids[: s.top_k], weights[: s.top_k]
    if s.top_p < 1:
        sums = weights.cumsum()
        count = int(np.searchsorted(sums, s.top_p * sums[-1] * (1 - 1e-12 + nudge))) + 1
        ids, weights = ids[:count], weights[:count]
    count = max(1, int((weights >= s.min_p).sum()))
    ids, weights = ids[:count], weights[:count]
    return dict(zip(ids.tolist(), (weights / weights.sum()).tolist(), strict=True))


def draw(probabilities: Mapping[int, float], uniform: float) -> int:
    """The first token at which the summed probabilities exceed the uniform number."""
    sums = np.cumsum(list(probabilities.values()))
    place = int(np.searchsorted(sums, uniform * sums[-1], side="right"))
    return list(probabilities)[min(place, len(sums) - 1)]


def possible_draws(row: Row, s: Sampling, uniform: float, slack: float) -> set[int]:
    """What may be drawn if sums of probabilities are only known up to `slack`."""
    is_filtered = s.top_k > 0 or s.top_p < 1 or s.min_p > 0
    tokens = set()
    for nudge in (-1e-11, 0.0, 1e-11) if is_filtered else (0.0,):
        probabilities = distribution(row, s, nudge)
        if not is_filtered:
            probabilities = dict(sorted(probabilities.items()))
        tokens |= {draw(probabilities, min(max(uniform + off, 0.0), 1 - 2**-53)) for off in (-slack, 0.0, slack)}
    return tokens


def penalised(row: Row, s: Sampling, prompt: Iterable[int], generated: Iterable[int]) -> Row:
    """Logits behind bias and penalties."""
    row = row.copy()
    for token, bias in s.logit_bias.items():
        row[token] += np.float32(bias)
    counts = Counter(generated)
    for token in {*prompt, *counts}:
        row[token] = row[token] / s.repetition_penalty if row[token] > 0 else row[token] * s.repetition_penalty
    for token, count in counts.items():
        row[token] -= s.frequency_penalty * count + s.presence_penalty
    return row


def surprise(counts: Mapping[int, int], probabilities: Mapping[int, float]) -> float:
    """Pearson's chi-square test: how likely counts are to lie at least this far from what is expected.

    Cells that expect fewer than 5 are joined. The tail of the distribution is Wilson's and Hilferty's approximation.
    """
    draws = sum(counts.values())
    cells = [(counts.get(token, 0), draws * p) for token, p in probabilities.items()]
    rare = [cell for cell in cells if cell[1] < 5]
    cells = [cell for cell in cells if cell[1] >= 5]
    if rare:
        cells.append((sum(seen for seen, _ in rare), sum(expected for _, expected in rare)))
    freedom = len(cells) - 1
    statistic = sum((seen - expected) ** 2 / expected for seen, expected in cells)
    spread = 2 / (9 * freedom)
    return 0.5 * math.erfc(((statistic / freedom) ** (1 / 3) - (1 - spread)) / math.sqrt(2 * spread))
