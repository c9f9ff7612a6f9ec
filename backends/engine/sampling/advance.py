"""One step of all decoding sequences: choose tokens, check what was guessed to follow, move the states on.

A sequence that nothing was guessed for gets one token. One with a draft has a row of logits behind each guessed token as well,
and every row is sampled *as if* the guesses before it were right, with the masks, the penalties and the random number that its
position would then have. The first row's token is the one that would have been chosen anyway. As long as a token equals the
guess, the row behind it was computed for the text that really stands there, so its token is again the one that would have been
chosen; at the first difference the rest is thrown away. By induction the answer is, token for token, the answer without
drafts, for greedy and for random choices alike: a draft saves time and changes nothing.

Drawing is thereby rejection sampling as well. A guessed token d is kept with the probability p(d) that the sampler gives it,
and otherwise the token is distributed as p without d, normalised: what Leviathan et al. 2023, "Fast inference from
transformers via speculative decoding", section 2.3, prove to be the best for a draft that is certain of itself. (That the
logits of a row may differ in the last bits between batches of different shapes is a matter of the model's kernels.)
"""

from collections.abc import Iterator, Sequence
from itertools import accumulate

from torch import Tensor

from backends.engine.sampling.sampler import Chosen, sample
from backends.engine.sampling.score import Piece
from backends.engine.sampling.state import Row, RowState
from backends.errors import BackendError
from backends.text.constraint import Constraint, Mask


def advance(
    logits: Tensor, states: Sequence[RowState], drafts: Sequence[Sequence[int]], piece: Piece
) -> list[list[Chosen] | BackendError]:
    """Choose the next tokens of each sequence, one to `len(draft) + 1`, and let its state accept them.

    A sequence whose constraint is complete gets nothing behind the token that completed it. What ends a sequence otherwise is
    not known here: no draft may hold an end token or reach beyond the last token that is wanted.

    Args:
        logits: [sum of `len(draft) + 1`, vocab] float32, contiguous; may be overwritten. For each sequence in turn a row that
            predicts the token after its newest one, then one behind each token of its draft.
        drafts: guessed tokens, `()` for none.

    Returns: for each sequence its tokens, or the error that ends it: a grammar that outgrew its limits (`Rejected`), or logits
        that nothing can be chosen from (`Failed`). The state of such a sequence is of no further use.
    """
    starts = [0, *accumulate(len(draft) + 1 for draft in drafts)][:-1]
    plans = [_rows(state, draft, start) for state, draft, start in zip(states, drafts, starts, strict=True)]
    found = iter(sample(logits, [row for plan in plans if isinstance(plan, list) for row in plan], piece))
    return [
        _accept(state, draft, [next(found) for _ in plan]) if isinstance(plan, list) else plan
        for state, draft, plan in zip(states, drafts, plans, strict=True)
    ]


def _rows(state: RowState, draft: Sequence[int], start: int) -> list[Row] | BackendError:
    """The rows that can matter: not those behind a guess that the constraint does not allow, or that completes it."""
    if state.constraint is None:
        return [Row(start + i, state, draft[:i]) for i in range(len(draft) + 1)]
    try:
        rows = [Row(start, state, mask=state.constraint.mask())]
    except BackendError as error:
        return error
    if draft:
        masks = _masks_ahead(state.constraint, draft)
        rows += [Row(start + i, state, draft[:i], mask) for i, mask in enumerate(masks, start=1)]
    return rows


def _masks_ahead(constraint: Constraint, draft: Sequence[int]) -> Iterator[Mask]:
    """The mask behind each token of a draft, as far as the draft can be right and the answer goes on."""
    ahead = constraint.copy()
    for token in draft:
        try:
            ahead.accept(token)
            if ahead.is_stopped:
                return
            yield ahead.mask().copy()
        except BackendError:  # not allowed; or a limit, which the constraint itself meets when it comes here
            return


def _accept(state: RowState, draft: Sequence[int], found: list[Chosen | BackendError]) -> list[Chosen] | BackendError:
    tokens: list[Chosen] = []
    for place, chosen in enumerate(found):
        if isinstance(chosen, BackendError):
            return tokens or chosen  # behind accepted tokens it comes again, with the next step
        try:
            state.accept(chosen.token)
        except BackendError as error:
            return error
        tokens.append(chosen)
        if place < len(draft) and chosen.token != draft[place]:
            break
    return tokens
