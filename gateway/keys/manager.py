"""Creating, listing and revoking keys, for the admin API and the command line alike."""

import logging
from collections.abc import Callable
from contextlib import suppress
from time import time

from gateway.errors import InvalidRequest
from gateway.keys.issue import issue_key
from gateway.keys.record import KeyRecord, KeySpec, is_key_id
from gateway.keys.ring import KeyRing
from gateway.keys.store import KeyStore
from gateway.keys.view import CreatedKey, KeyList, KeyView, view_created_key, view_key
from gateway.store.errors import StoreDown

logger = logging.getLogger(__name__)

_MAX_ECHO_CHARS = 64


class UnknownKey(InvalidRequest):
    """No stored key has that id."""

    status = 404
    code = "key_not_found"


class KeyManager:
    """Changes stored keys, and tells the ring of this process at once.

    Every method raises `StoreDown` when the store cannot answer.

    Args:
        ring: None in a process that lets nobody in, such as a command.
        now: the time of day in Unix seconds.
    """

    def __init__(self, store: KeyStore, ring: KeyRing | None = None, *, now: Callable[[], float] = time) -> None:
        self._store = store
        self._ring = ring
        self._now = now

    async def create(self, spec: KeySpec) -> CreatedKey:
        """Make a key. The answer holds it for the only time.

        Raises:
            InvalidRequest: it would have expired already, or the store is full.
        """
        now = self._now()
        record, key = issue_key(spec, now)
        await self._store.add(record)
        await self._tell_ring()
        logger.info("key %s was created", record.id)
        return view_created_key(record, key, now)

    async def list(self) -> KeyList:
        """Show all keys, also revoked and expired ones."""
        now = self._now()
        return KeyList(data=[view_key(record, now) for record in await self._store.all()])

    async def get(self, key_id: str) -> KeyView:
        """Show one key. Raises `UnknownKey`."""
        return view_key(_known(key_id, await self._store.get(key_id) if is_key_id(key_id) else None), self._now())

    async def revoke(self, key_id: str) -> KeyView:
        """End a key for good; one that is revoked already stays as it is. Raises `UnknownKey`."""
        now = self._now()
        record = _known(key_id, await self._store.revoke(key_id, int(now)) if is_key_id(key_id) else None)
        await self._tell_ring()
        logger.info("key %s was revoked", record.id)
        return view_key(record, now)

    async def _tell_ring(self) -> None:
        if self._ring is not None:
            # The change is stored; the ring follows by itself when the store is back.
            with suppress(StoreDown):
                await self._ring.refresh()


def _known(key_id: str, record: KeyRecord | None) -> KeyRecord:
    if record is None:
        raise UnknownKey(f"No key has the id '{key_id[:_MAX_ECHO_CHARS]}'.")
    return record
