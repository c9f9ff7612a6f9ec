"""The keys as authentication sees them: one dictionary in memory, from digest to identity, that follows the store.

Looking a key up asks nobody. About once a second the ring asks the store for its version and reads the keys again when it
changed, so a key that another process created or revoked works, or stops working, within about that time. While the store is
down the last known keys stay valid.

A dictionary takes a little longer for one digest than for another. That tells an attacker nothing: they choose keys, not
digests, and cannot make a digest that shares its beginning with a stored one; and the table is laid out by a hash whose secret
Python draws anew in every process. So no comparison in constant time is needed, not even for short keys that people chose.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from time import time

from gateway.identity import Identity
from gateway.keys.record import KeyRecord
from gateway.keys.store import KeyStore
from gateway.store.errors import StoreDown

logger = logging.getLogger(__name__)

TOUCH_INTERVAL_S = 60
_NEVER = float("inf")


class KeyRing:
    """Which keys are valid now. Belongs to one event loop.

    Args:
        store: keys that come and go; None where there are only static ones.
        static: keys that stay, by SHA-256 digest.
        required: ask for a key even while none exists.
        refresh_s: seconds between two looks at the store's version.
        now: the time of day in Unix seconds, which keys expire by.
    """

    def __init__(
        self,
        store: KeyStore | None = None,
        static: Mapping[bytes, Identity] | None = None,
        *,
        required: bool = False,
        refresh_s: float = 1.0,
        now: Callable[[], float] = time,
    ) -> None:
        self._store = store
        self._refresh_s = refresh_s
        self._now = now
        self._stored_entries: dict[bytes, tuple[Identity, float]] = {}
        self._required = required
        self.replace_static(static or {})
        self._version: int | None = None if store is not None else 0
        self._is_down = False
        self._used: set[str] = set()
        self._touched_at = now()
        self._refreshing = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None

    @property
    def is_known(self) -> bool:
        """Whether the store has been read at least once: before that, an unknown key may be a good one."""
        return self._version is not None

    @property
    def is_open(self) -> bool:
        """Whether everybody is let in, because there are no keys: none configured, and none stored, not even a revoked one.

        Once there was a key the ring stays closed, also when the store loses everything it had.
        """
        return not self._required and self._version is not None

    def replace_static(self, static: Mapping[bytes, Identity]) -> None:
        """Take these for the keys that stay. A ring that was closed stays closed, also when none is left."""
        self._static_entries = {digest: (identity, _NEVER) for digest, identity in static.items()}
        self._static_ids = frozenset(identity.key_id for identity in static.values())
        self._entries = self._stored_entries | self._static_entries
        self._by_id = _by_id(self._entries)
        self._required |= bool(static)

    def find(self, digest: bytes) -> Identity | None:
        """Say whose key has this SHA-256 digest; None when nobody's, or it is revoked or expired."""
        entry = self._entries.get(digest)
        if entry is None:
            return None
        identity, expires_at = entry
        if expires_at is not _NEVER and expires_at <= self._now():
            return None
        self._used.add(identity.key_id)
        return identity

    def current(self, identity: Identity) -> Identity | None:
        """Say what the key of an earlier request may do now; None when it is no longer valid, or keys are asked for since.

        Before the store has been read nothing is known against anybody.
        """
        if not self.is_known:
            return identity
        if not identity.key_id:
            return identity if self.is_open else None
        entry = self._by_id.get(identity.key_id)
        return entry[0] if entry is not None and entry[1] > self._now() else None

    async def start(self) -> None:
        """Read the store, and keep following it until `close`. A store that is down is tried again, and raises nothing."""
        await self._try_refresh()
        if self._store is not None:
            self._task = asyncio.create_task(self._follow())

    async def refresh(self) -> None:
        """Read the store now if it changed.

        Raises:
            StoreDown: it cannot be read; the ring stays as it was.
        """
        if self._store is None:
            return
        async with self._refreshing:
            # The version first: a change between the two reads shows as a new version next time.
            version = await self._store.version()
            if version != self._version:
                self._take(await self._store.all())
                self._required |= version != 0
                self._version = version

    async def touch(self) -> None:
        """Tell the store which keys were used since the last time.

        Raises:
            StoreDown: it cannot be told; that is tried again with the next ones.
        """
        used = self._used - self._static_ids
        if self._store is not None and used:
            await self._store.touch(used, int(self._now()))
        self._used -= used

    async def close(self) -> None:
        """Stop following the store, and note the last uses. May be called twice."""
        if self._task is None:
            return
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task
        self._task = None
        with suppress(StoreDown):
            await self.touch()

    def _take(self, records: list[KeyRecord]) -> None:
        self._stored_entries = {
            record.digest: (record.identity(), _NEVER if record.expires_at is None else float(record.expires_at))
            for record in records
            if record.revoked_at is None
        }
        self._entries = self._stored_entries | self._static_entries
        self._by_id = _by_id(self._entries)

    async def _follow(self) -> None:
        while True:
            await asyncio.sleep(self._refresh_s)
            await self._try_refresh()

    async def _try_refresh(self) -> None:
        try:
            await self.refresh()
            if self._now() - self._touched_at >= TOUCH_INTERVAL_S:
                self._touched_at = self._now()
                await self.touch()
        except StoreDown as error:
            if not self._is_down:
                logger.warning("the key store is down, the keys known so far stay valid: %s", error)
            self._is_down = True
        except Exception:
            # Whatever is wrong with the store, requests with good keys must go on.
            if not self._is_down:
                logger.exception("the keys could not be refreshed, those known so far stay valid")
            self._is_down = True
        else:
            if self._is_down:
                logger.info("the key store is back")
            self._is_down = False


def _by_id(entries: Mapping[bytes, tuple[Identity, float]]) -> dict[str, tuple[Identity, float]]:
    return {entry[0].key_id: entry for entry in entries.values()}
