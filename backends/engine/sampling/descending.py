"""One row in descending order, sorted only where somebody looks.

Sorting a vocabulary takes milliseconds, but no filter needs the whole order: each asks where the sum of the first so many
weights reaches a number. So the tokens are thrown into narrow classes of similar logits; the sums of whole classes lead to the
one class in which the answer lies, and that alone is sorted.
"""

import torch
from torch import Tensor

_PER_NAT = 64.0  # classes for each factor of e between weights
_CLASSES = 2048  # the last one holds all that is more than 32 nats below the best, and -inf


class Descending:
    """The tokens of a row from the most to the least likely, equal ones by id, with weights relative to the best.

    Args:
        logits: [vocab] float32; the largest is finite.
        temperature: above 0.
    """

    def __init__(self, logits: Tensor, temperature: float) -> None:
        self._logits = logits
        exact = logits.double()
        depths = (exact.max() - exact) / temperature
        self.weights = (-depths).exp()  # [vocab] float64
        self._class = (depths * _PER_NAT).clamp_(max=_CLASSES - 1).int()
        self._counts = torch.bincount(self._class, minlength=_CLASSES).cumsum(0)
        self._masses = torch.bincount(self._class, weights=self.weights, minlength=_CLASSES).cumsum(0)
        self._sorted: dict[int, tuple[Tensor, Tensor]] = {}

    def mass(self, count: int) -> float:
        """Sum the weights of the first `count` tokens (1 to vocab)."""
        at = int(torch.searchsorted(self._counts, count))
        before, mass = self._before(at)
        return mass + float(self._inside(at)[1][count - before - 1])

    def reaching(self, mass: float) -> int:
        """Count how many of the first tokens it takes for a sum of at least `mass` (at most the sum of all)."""
        return self._locate(mass, right=False)[0] + 1

    def token(self, mass: float) -> int:
        """Find the first token at which the sum exceeds `mass` (less than the sum of all)."""
        return self._locate(mass, right=True)[1]

    def _locate(self, mass: float, right: bool) -> tuple[int, int]:
        """Rank (from 0) and id of the token at which the sum reaches, or for `right` exceeds, a mass."""
        at = min(int(torch.searchsorted(self._masses, mass, right=right)), _CLASSES - 1)
        ids, sums = self._inside(at)
        before, start = self._before(at)
        last = int((sums < sums[-1]).sum())  # rounding may put the mass behind all that has weight
        place = min(int(torch.searchsorted(sums, mass - start, right=right)), last)
        return before + place, int(ids[place])

    def _before(self, at: int) -> tuple[int, float]:
        """How many tokens are in the classes before one, and their mass."""
        return (int(self._counts[at - 1]), float(self._masses[at - 1])) if at else (0, 0.0)

    def _inside(self, at: int) -> tuple[Tensor, Tensor]:
        """The ids of one class in order, and the sums of their weights up to each."""
        if at in self._sorted:
            return self._sorted[at]
        ids = (self._class == at).nonzero().squeeze(1)
        order = torch.sort(self._logits[ids], dim=0, descending=True, stable=True).indices
        ids = ids[order]
        self._sorted[at] = ids, self.weights[ids].cumsum(0)
        return self._sorted[at]
