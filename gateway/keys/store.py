"""What every store of keys can do. Implementations raise `StoreDown` when they cannot answer.

Revoked keys stay stored: they explain old log lines, and a gateway whose last key was revoked must not become an open one.
"""

from collections.abc import Collection
from typing import Protocol

from gateway.errors import InvalidRequest
from gateway.keys.record import KeyRecord

MAX_KEYS = 10_000
"""Stored keys, revoked ones included; when it is reached, the key that was revoked first makes room."""


class TooManyKeys(InvalidRequest):
    """The store is full of keys that are not revoked."""

    status = 409
    code = "too_many_keys"

    def __init__(self, limit: int) -> None:
        super().__init__(f"{limit} keys are stored, which is the limit. Revoke one that is no longer used.")


class KeyStore(Protocol):
    """Keeps records by id."""

    async def add(self, record: KeyRecord) -> None:
        """Store a new record. Raises `TooManyKeys`."""
        ...

    async def get(self, key_id: str) -> KeyRecord | None:
        """Return one record, revoked or not."""
        ...

    async def all(self) -> list[KeyRecord]:
        """Return all records, revoked ones too, oldest first."""
        ...

    async def revoke(self, key_id: str, at: int) -> KeyRecord | None:
        """Revoke a key at a Unix second, and return it; one that is revoked already keeps its time. None: no such key."""
        ...

    async def touch(self, key_ids: Collection[str], at: int) -> None:
        """Note that keys were used at a Unix second. Does not change the version."""
        ...

    async def version(self) -> int:
        """A number that changes whenever a key is added or revoked; 0 while nothing was ever stored. Cheap."""
        ...
