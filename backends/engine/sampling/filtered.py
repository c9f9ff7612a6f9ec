"""Drawing behind top-k, top-p and min-p. The result is that of sorting the vocabulary, which never happens.

Each filter keeps the first so many tokens of the descending order, so that what they leave is a count. In most rows it lies
among a few candidates, which are found and sorted for all rows at once; the others are looked at one by one, more closely.
"""

import torch
from torch import Tensor

from backends.engine.sampling.descending import Descending
from backends.engine.sampling.ranking import ranked
from backends.engine.sampling.settings import Settings
from backends.types import Sampling

_CANDIDATES = 64
# What reaches the share of top-p in exact arithmetic must not miss it by rounding.
_REACHED = 1 - 1e-12
# A mass summed in float32 is off by less than this, relatively. A row in which that could matter is looked at more closely.
_SLACK = 1e-5


def draw_filtered(logits: Tensor, settings: Settings) -> Tensor:
    """Draw a token for each row: the first, in descending order, at which the summed probabilities exceed the uniform number.

    top-k keeps that many tokens; top-p, of those, the fewest that reach its share of their mass; min-p those whose probability
    is at least its share of the largest. One token always stays. Equal logits count in the order of their ids.

    Args:
        logits: [rows, vocab] float32; the largest of each row is finite.

    Returns: [rows] int64.
    """
    values, ids = ranked(logits, _CANDIDATES)
    weights = ((values.double() - values[:, :1]) / settings.temperature).exp_()
    sums, size = weights.cumsum(-1), weights.shape[1]
    count = _kept(logits, weights, sums, settings)
    mass = sums.gather(1, count.clamp(max=size) - 1)
    # Uniform numbers are below 1, so the goal is below the mass, and what has no weight is never drawn.
    tokens = ids.gather(1, (sums <= settings.uniform * mass).sum(-1, keepdim=True)).squeeze(1)
    for row in (count > size).nonzero()[:, 0].tolist():
        tokens[row] = _draw_one(logits[row], settings.sampling[row], settings.uniforms[row])
    return tokens


def _kept(logits: Tensor, weights: Tensor, sums: Tensor, settings: Settings) -> Tensor:
    """Count what the filters keep, [rows, 1] int64. A count above the number of candidates means that it lies beyond them.

    Args:
        weights, sums: [rows, candidates] float64, relative to the best.
    """
    vocab, size = logits.shape[1], weights.shape[1]
    beyond = size if size == vocab else size + 1
    top_k = torch.where(settings.top_k > 0, settings.top_k.clamp(max=vocab), vocab).long()
    mass = torch.where(top_k <= size, sums.gather(1, top_k.clamp(max=size) - 1), torch.inf)
    slack = torch.zeros_like(mass)
    unlimited = [i for i, s in enumerate(settings.sampling) if s.top_k == 0 and s.top_p < 1]
    if unlimited and size < vocab:
        mass[unlimited] = _total(logits, unlimited, settings)
        slack[unlimited] = _SLACK
    goal = settings.top_p * mass * _REACHED
    fewest, most = ((sums < goal * factor).sum(-1, keepdim=True) + 1 for factor in (1 - slack, 1 + slack))
    top_p = torch.where(settings.top_p < 1, fewest, vocab)
    min_p = (weights >= settings.min_p).sum(-1, keepdim=True).clamp(min=1)
    min_p = torch.where(min_p < size, min_p, beyond)
    is_unsure = (settings.top_p < 1) & (mass.isinf() | (fewest < most))
    return torch.where(is_unsure, beyond, top_k.minimum(top_p).minimum(min_p))


def _total(logits: Tensor, rows: list[int], settings: Settings) -> Tensor:
    """The mass of the whole vocabulary of some rows, relative to the best: [some, 1] float64, summed in float32."""
    some = logits if len(rows) == len(logits) else logits[rows]
    depths = (some - some.amax(-1, keepdim=True)).div_(settings.temperature[rows].float())
    return depths.exp_().sum(-1, keepdim=True).double()


def _draw_one(logits: Tensor, sampling: Sampling, uniform: float) -> int:
    order, count = Descending(logits, sampling.temperature), len(logits)
    if sampling.top_k:
        count = min(sampling.top_k, count)
    if sampling.top_p < 1:
        count = min(count, order.reaching(sampling.top_p * order.mass(count) * _REACHED))
    if sampling.min_p > 0:
        count = min(count, max(1, int((order.weights >= sampling.min_p).sum())))
    return order.token(uniform * order.mass(count))
