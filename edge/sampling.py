"""From a row of logits to a token id.

llama.cpp's own sampler chain first copies the whole vocabulary into an array of candidates (49,152 entries of 12 bytes, about
80 µs, for SmolLM2). Here the row is read where llama.cpp left it: greedy is one `argmax`, and the filters look only at
candidates close enough to the best one to matter, widening exactly when that was not enough. The result is the same as
sorting everything.
"""

import numpy as np
import numpy.typing as npt

from backends.types import Sampling

Row = npt.NDArray[np.float32]
"""Logits of one position: [vocab] float32, contiguous. The caller's until the next decode; may be overwritten."""

# Candidates within this many nats of the best carry all but about 1e-3 of the mass of any usual distribution.
_FIRST_MARGIN = 12.0
_BLOCK = 256


class Sampler:
    """The choices of one sequence: its random numbers, and what its penalties have seen."""

    __slots__ = ("_bias_ids", "_bias_values", "_counts", "_prompt_ids", "_random", "_s", "is_plain_greedy", "rewrites")

    def __init__(self, sampling: Sampling, prompt: list[int], index: int) -> None:
        """`index` is the choice: choices of one request with a seed differ from each other, and are the same every time."""
        s = self._s = sampling
        seed = None if s.seed is None else (s.seed & (2**64 - 1), index)
        self._random = np.random.Generator(np.random.PCG64(seed)) if s.temperature > 0 else None
        self._bias_ids = np.fromiter(s.logit_bias.keys(), np.intp, len(s.logit_bias))
        self._bias_values = np.fromiter(s.logit_bias.values(), np.float32, len(s.logit_bias))
        self._counts: dict[int, int] = {}
        self._prompt_ids = np.unique(np.asarray(prompt, np.intp)) if s.repetition_penalty != 1 else None
        penalised = s.repetition_penalty != 1 or s.frequency_penalty != 0 or s.presence_penalty != 0
        self.rewrites = bool(s.logit_bias) or penalised
        self.is_plain_greedy = s.temperature == 0 and not self.rewrites

    def accept(self, token: int) -> None:
        """Let the penalties see a generated token."""
        if self.rewrites:
            self._counts[token] = self._counts.get(token, 0) + 1

    def sample(self, row: Row) -> int:
        """Choose a token. Overwrites `row` when `rewrites` is set."""
        if self.rewrites:
            self._rewrite(row)
        if self._random is None:
            return int(row.argmax())
        uniform = self._random.random()
        if self._s.top_k == 0 and self._s.top_p == 1 and self._s.min_p == 0:
            return _draw_from_all(row, self._s.temperature, uniform)
        ids, weights = self._candidates(row)
        cumulated = weights.cumsum()
        return int(ids[min(int(cumulated.searchsorted(uniform * cumulated[-1], side="right")), len(ids) - 1)])

    def _rewrite(self, row: Row) -> None:
        s = self._s
        if len(self._bias_ids):
            row[self._bias_ids] += self._bias_values
        generated = np.fromiter(self._counts.keys(), np.intp, len(self._counts))
        if self._prompt_ids is not None:
            seen = np.union1d(self._prompt_ids, generated)
            values = row[seen]
            row[seen] = np.where(values > 0, values / s.repetition_penalty, values * s.repetition_penalty)
        if len(generated) and (s.frequency_penalty or s.presence_penalty):
            counts = np.fromiter(self._counts.values(), np.float32, len(self._counts))
            row[generated] -= s.frequency_penalty * counts + s.presence_penalty

    def _candidates(self, row: Row) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.float64]]:
        """What top-k, then top-p, then min-p leave, best first, with weights relative to the best."""
        s, best = self._s, float(row.max())
        margin = _FIRST_MARGIN * s.temperature
        total = None
        while True:
            ids = np.flatnonzero(row >= best - margin)
            is_all = not np.isfinite(margin) or len(ids) == len(row)
            if s.top_k and len(ids) < min(s.top_k, len(row)) and not is_all:
                margin = _widen(margin)
                continue
            ids = ids[np.argsort(-row[ids], kind="stable")]
            if s.top_k:
                ids = ids[: s.top_k]
            weights = np.exp((row[ids].astype(np.float64) - best) / s.temperature)
            if s.top_p < 1:
                if total is None:
                    total = _mass(row, best, s.temperature)
                goal = s.top_p * (float(weights.sum()) if s.top_k else total)
                cumulated = weights.cumsum()
                if cumulated[-1] < goal and not s.top_k and not is_all:
                    margin = _widen(margin)
                    continue
                count = int(cumulated.searchsorted(goal * (1 - 1e-12))) + 1
                ids, weights = ids[:count], weights[:count]
            if s.min_p > 0:
                count = max(1, int(np.count_nonzero(weights >= s.min_p)))
                ids, weights = ids[:count], weights[:count]
            return ids, weights


def _widen(margin: float) -> float:
    return margin * 2 if margin < 1e6 else float("inf")


def _mass(row: Row, best: float, temperature: float) -> float:
    return float(np.exp((row - np.float32(best)) / np.float32(temperature)).sum(dtype=np.float64))


def _draw_from_all(row: Row, temperature: float, uniform: float) -> int:
    """Draw from the whole softmax: first a block by its mass, then a token within, instead of a sum over the vocabulary."""
    weights = np.exp((row - row.max()) / np.float32(temperature))
    whole = len(weights) // _BLOCK * _BLOCK
    masses = weights[:whole].reshape(-1, _BLOCK).sum(axis=1, dtype=np.float64)
    if whole < len(weights):
        masses = np.append(masses, weights[whole:].sum(dtype=np.float64))
    cumulated = masses.cumsum()
    goal = uniform * cumulated[-1]
    block = min(int(cumulated.searchsorted(goal, side="right")), len(masses) - 1)
    inside = weights[block * _BLOCK : (block + 1) * _BLOCK].cumsum(dtype=np.float64)
    goal -= float(cumulated[block] - masses[block])
    return block * _BLOCK + min(int(inside.searchsorted(goal, side="right")), len(inside) - 1)


def log_probabilities(row: Row, top: int) -> tuple[float, npt.NDArray[np.intp]]:
    """Find the log of the softmax's denominator, and the ids of the `top` most likely tokens, best first."""
    best = row.max()
    log_total = float(best) + float(np.log(np.exp(row - best).sum(dtype=np.float64)))
    if not top:
        return log_total, np.empty(0, np.intp)
    ids = np.argpartition(row, -top)[-top:]
    return log_total, ids[np.argsort(-row[ids], kind="stable")]
