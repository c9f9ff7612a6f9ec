"""Compares what two models say about the same tokens.

Of each token: the negative log likelihood by either model, the Kullback-Leibler divergence of their distributions, whether both
would choose the same token, and whether only one of them would choose the right one (Dutta et al. 2024, "Accuracy is Not All
You Need": flips from right to wrong and back, which an accuracy does not show because they cancel).
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields

import torch

from backends.engine.evaluation.bootstrap import bootstrap_means
from backends.engine.evaluation.report import Interval, Quality


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenScores:
    """A number per scored token, each [n] float32; `nll` and `kl` in nats, `same_top` and `flipped` 0 or 1."""

    reference_nll: torch.Tensor
    nll: torch.Tensor
    kl: torch.Tensor
    same_top: torch.Tensor
    flipped: torch.Tensor


def join(parts: Sequence[TokenScores]) -> TokenScores:
    """Put the scores of some tokens behind those of others."""
    return TokenScores(
        **{field.name: torch.cat([getattr(part, field.name) for part in parts]) for field in fields(TokenScores)}
    )


def compare(reference: torch.Tensor, logits: torch.Tensor, targets: torch.Tensor) -> TokenScores:
    """Score a few tokens. Holds five matrices like `logits` for a moment.

    `kl` is sum(p * ln(p / q) - p + q) with the reference's distribution p: the divergence, as both sum to 1, but without
    negative terms, so that rounding does not drown small ones.

    Args:
        reference, logits: [n, vocab] float32.
        targets: [n] int64, the tokens that do follow.
    """
    log_p, log_q = reference.log_softmax(-1), logits.log_softmax(-1)
    p, q = log_p.exp(), log_q.exp()
    kl = (log_p - log_q).mul_(p).sub_(p).add_(q).sum(-1).clamp_min_(0)
    top, other_top = reference.argmax(-1), logits.argmax(-1)
    return TokenScores(
        reference_nll=-log_p.gather(1, targets[:, None])[:, 0],
        nll=-log_q.gather(1, targets[:, None])[:, 0],
        kl=kl,
        same_top=(top == other_top).float(),
        flipped=((top == targets) != (other_top == targets)).float(),
    )


def perplexity(nll: torch.Tensor) -> float:
    """exp of the mean negative log likelihood (Jelinek et al. 1977)."""
    return float(nll.double().mean().exp())


def summarise(scores: TokenScores) -> Quality:
    """Describe how far a model is from its reference. All intervals come from the same resampled tokens."""
    worse = scores.nll.double() - scores.reference_nll.double()
    worse_by, kl, flips = bootstrap_means(torch.stack([worse, scores.kl.double(), scores.flipped.double()]))
    ratio = torch.tensor([worse_by.mean, worse_by.low, worse_by.high], dtype=torch.float64).exp().tolist()
    return Quality(
        perplexity=perplexity(scores.nll),
        perplexity_ratio=Interval(*ratio),
        kl=kl,
        kl_p99=float(scores.kl.double().quantile(0.99)),
        same_top=float(scores.same_top.double().mean()),
        flips=flips,
    )
