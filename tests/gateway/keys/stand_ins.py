"""What stands in for the world: a clock that the test moves, and a store that fails on demand."""

from gateway.keys.store import KeyStore
from gateway.store.errors import StoreDown


class Clock:
    """The time of day, in Unix seconds."""

    def __init__(self) -> None:
        self.now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


class Switch:
    """A store that can be switched off."""

    def __init__(self, store: KeyStore) -> None:
        self._store = store
        self.down = False
        self.broken = False
        self.calls: list[str] = []

    def __getattr__(self, name: str):
        async def call(*args):
            self.calls.append(name)
            if self.down:
                raise StoreDown("switched off")
            if self.broken:
                raise LookupError("a bug")
            return await getattr(self._store, name)(*args)

        return call
