"""Log probabilities under the unmodified model: before temperature, penalties, masks and filters."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from backends.child.work import Scored
from backends.engine.sampling.ranking import ranked
from backends.types import Alternative

_LOWEST = -9999.0
_ROWS_AT_ONCE = 64

Piece = Callable[[int], bytes]
"""The exact bytes of a token."""


def score(logits: Tensor, tokens: Sequence[int], tops: Sequence[int], piece: Piece) -> list[Scored]:
    """Score one token for each row.

    Args:
        logits: [rows, vocab] float32, as the model computed them.
        tokens: the id to score in each row.
        tops: how many of the most likely tokens to give beside each, best first and equal ones by id.
    """
    totals = logits.logsumexp(-1).tolist()
    chosen = logits.gather(1, torch.tensor(tokens, device=logits.device).unsqueeze(1)).squeeze(1).tolist()
    if not any(tops):
        return [Scored(_clamp(value - total), ()) for value, total in zip(chosen, totals, strict=True)]
    values, ids = (found.tolist() for found in ranked(logits, max(tops)))
    return [
        Scored(
            _clamp(chosen[row] - total),
            tuple(
                Alternative(token, piece(token), _clamp(value - total))
                for token, value in zip(ids[row][:top], values[row][:top], strict=True)
            ),
        )
        for row, (total, top) in enumerate(zip(totals, tops, strict=True))
    ]


def score_prompt(logits: Tensor, following: Sequence[int], top: int, piece: Piece) -> list[Scored]:
    """Score prompt tokens by the logits of the positions before them. Beside its arguments it needs memory for 64 rows.

    Args:
        logits: [at least as many as `following`, vocab] float32; row i predicts `following[i]`.
        following: token ids.
        top: how many alternatives to give beside each.
    """
    scores: list[Scored] = []
    for start in range(0, len(following), _ROWS_AT_ONCE):
        tokens = following[start : start + _ROWS_AT_ONCE]
        scores += score(logits[start : start + len(tokens)], tokens, [top] * len(tokens), piece)
    return scores


def _clamp(logprob: float) -> float:
    return logprob if logprob > _LOWEST else _LOWEST
