"""Choosing the next token, in plain torch and float64: by sorting the whole vocabulary. What the settings mean: `choose`."""

import torch

REACHED = 1e-12
"""What reaches the share of top-p in exact arithmetic must not miss it by rounding: so much less is enough, relatively."""

COLDEST = 1e-30
"""Lower temperatures than this let nothing but the largest logit pass either."""


def choose(
    logits: torch.Tensor,
    temperature: torch.Tensor,
    top_k: torch.Tensor,
    top_p: torch.Tensor,
    min_p: torch.Tensor,
    uniform: torch.Tensor,
) -> torch.Tensor:
    """Choose a token for each row.

    At temperature 0 it is the largest logit, of equal ones the lowest id. Otherwise weights are exp(logit / temperature), and
    the token is the first at which the summed weights exceed `uniform` times their sum: in the order of ids where nothing is
    filtered, else in descending order, equal ones by id. The filters keep the first so many of that order, at least one: top-k
    that many; top-p, of those, the fewest that reach its share of their mass; min-p those whose weight is at least its share of
    the largest.

    Args:
        logits: [rows, vocab] float32.
        temperature, top_p, min_p: [rows] float64. A `top_p` of 1 and a `min_p` of 0 are none.
        top_k: [rows] int64; 0 is none.
        uniform: [rows] float64, from 0 to 1, exclusive.

    Returns:
        [rows] int64; -1 where the largest logit is not finite.
    """
    settings = zip(*(each.tolist() for each in (temperature, top_k, top_p, min_p, uniform)), strict=True)
    return torch.tensor([_choose_one(row, *each) for row, each in zip(logits, settings, strict=True)], device=logits.device)


def _choose_one(row: torch.Tensor, temperature: float, top_k: int, top_p: float, min_p: float, uniform: float) -> int:
    if not bool(row.max().isfinite()):
        return -1
    if temperature == 0:
        return int(row.argmax())
    weights = ((row.double() - row.max()) / max(temperature, COLDEST)).exp()
    if top_k == 0 and top_p >= 1 and min_p <= 0:
        ids = torch.arange(len(row), device=row.device)
    else:
        ids = torch.sort(row, descending=True, stable=True).indices
        kept = weights[ids][: top_k or None]
        if top_p < 1:
            goal = top_p * float(kept.sum()) * (1 - REACHED)
            kept = kept[: int((kept.cumsum(0) < goal).sum()) + 1]
        ids = ids[: max(1, int((kept >= min_p).sum()))]
    sums = weights[ids].cumsum(0)
    return int(ids[torch.searchsorted(sums, uniform * float(sums[-1]), right=True).clamp(max=len(ids) - 1)])


def score(logits: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    """Compute the log probabilities of tokens: [rows] float64 from [rows, vocab] and [rows]; 0 for a token below 0."""
    found = logits.double().log_softmax(-1).gather(1, tokens.clamp(min=0)[:, None])[:, 0]
    return torch.where(tokens < 0, 0.0, found)
