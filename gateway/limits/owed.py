"""Costs that a shared store could not be told of yet, each with the id under which it is charged once and no more."""

from collections.abc import Iterator

from gateway.limits.demand import Demand


class Owed:
    """A bounded list; beyond `max_entries` the oldest is forgotten."""

    def __init__(self, max_entries: int) -> None:
        self._max_entries = max_entries
        self._demands: dict[str, Demand] = {}
        self._accounts: dict[tuple[str, str], dict[str, float]] = {}

    def __len__(self) -> int:
        """The number of costs."""
        return len(self._demands)

    def __iter__(self) -> Iterator[tuple[str, Demand, float]]:
        """The costs of this moment, oldest first, as id, demand and dollars."""
        return iter([(charge, demand, self._account(demand)[charge]) for charge, demand in self._demands.items()])

    def add(self, charge: str, demand: Demand, usd: float) -> None:
        """Remember a cost."""
        if len(self._demands) >= self._max_entries:
            self.remove(next(iter(self._demands)))
        self._demands[charge] = demand
        self._accounts.setdefault((demand.key_id, demand.budget), {})[charge] = usd

    def remove(self, charge: str) -> None:
        """Forget a cost; one that is not there is ignored."""
        demand = self._demands.pop(charge, None)
        if demand is not None:
            account = self._account(demand)
            del account[charge]
            if not account:
                del self._accounts[demand.key_id, demand.budget]

    def total(self, demand: Demand) -> float:
        """What is owed for the key and period of a demand, in dollars."""
        return sum(self._account(demand).values())

    def _account(self, demand: Demand) -> dict[str, float]:
        return self._accounts.get((demand.key_id, demand.budget), {})
