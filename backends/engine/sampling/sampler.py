"""From logits to token ids, for all rows of a batch at once. Nothing here changes the state of a sequence.

Batches without anything special, which is what most steps of a greedy server are, take one pass for the maximum. Otherwise each
further pass is over those rows alone that ask for it. What is chosen for a row does not depend on the rows beside it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from backends.child.work import Scored
from backends.engine.sampling.filtered import draw_filtered
from backends.engine.sampling.ranking import largest
from backends.engine.sampling.rewrite import rewrite
from backends.engine.sampling.score import Piece, score
from backends.engine.sampling.settings import Settings
from backends.engine.sampling.state import Row
from backends.engine.sampling.unfiltered import draw_unfiltered
from backends.errors import BackendError, Failed


@dataclass(frozen=True, slots=True)
class Chosen:
    """A token, with its log probability where that is wanted."""

    token: int
    scored: Scored | None = None


def sample(logits: Tensor, rows: Sequence[Row], piece: Piece) -> list[Chosen | BackendError]:
    """Choose a token for each of `rows`, or say why none can be.

    Greedy takes the largest logit, of equal ones the lowest id. A row with a temperature is drawn from by its own random number
    (`draw_unfiltered`, `draw_filtered`). A row whose largest logit is not finite has an error: the model computed nonsense, or
    nothing may follow.

    Args:
        logits: [any, vocab] float32, contiguous; may be overwritten.
        rows: which logits belong to whom, in any order.
    """
    wanted = [row for row in rows if row.state.logprobs is not None]
    originals = logits[[row.at for row in wanted]] if wanted else None  # a copy, because the rows may be rewritten
    rewrite(logits, rows)
    values, ids = largest(logits)
    best, tokens = values.tolist(), ids.tolist()
    possible = [row for row in rows if row.state.uniforms is not None and math.isfinite(best[row.at])]
    if unfiltered := [row for row in possible if not row.state.is_filtered]:
        at = [row.at for row in unfiltered]
        drawn = draw_unfiltered(_only(logits, at), values[at], Settings(unfiltered, logits.device))
        _put(tokens, at, drawn)
    if filtered := [row for row in possible if row.state.is_filtered]:
        at = [row.at for row in filtered]
        _put(tokens, at, draw_filtered(_only(logits, at), Settings(filtered, logits.device)))
    scored: dict[int, Scored] = {}
    if originals is not None:
        tops = [row.state.logprobs or 0 for row in wanted]
        scores = score(originals, [tokens[row.at] for row in wanted], tops, piece)
        scored = {row.at: one for row, one in zip(wanted, scores, strict=True)}
    return [_problem(best[row.at]) or Chosen(tokens[row.at], scored.get(row.at)) for row in rows]


def _only(logits: Tensor, at: list[int]) -> Tensor:
    return logits if at == list(range(len(logits))) else logits[at]


def _put(tokens: list[int], at: list[int], drawn: Tensor) -> None:
    for place, token in zip(at, drawn.tolist(), strict=True):
        tokens[place] = token


def _problem(best: float) -> BackendError | None:
    if best == -math.inf:
        return Failed("no token may follow: all that the constraint allows are banned")
    if not math.isfinite(best):
        return Failed("the model computed a logit that is not a finite number")
    return None
