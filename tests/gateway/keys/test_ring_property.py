"""Any mix of creating, revoking, expiring and outages: after a refresh the ring lets in exactly the keys that are good."""

import asyncio
from hashlib import sha256

from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.keys.issue import issue_key
from gateway.keys.record import KeySpec
from gateway.keys.ring import KeyRing
from gateway.keys.sqlite_store import SqliteKeyStore
from gateway.keys.static import static_identities
from gateway.store.errors import StoreDown
from gateway.store.sqlite import Database
from tests.gateway.keys.stand_ins import Clock, Switch

FIXED = sha256(b"fixed").digest()

steps = st.one_of(
    st.tuples(st.just("create"), st.none() | st.integers(1, 30)),
    st.tuples(st.just("revoke"), st.integers(0, 20)),
    st.tuples(st.just("wait"), st.integers(1, 20)),
    st.tuples(st.just("down"), st.booleans()),
    st.tuples(st.just("refresh"), st.none()),
)


class Model:
    """The keys as they should be: by digest, what the ring last saw and what the store holds."""

    def __init__(self) -> None:
        self.stored: dict[bytes, tuple[str, int | None, bool]] = {}
        self.seen: dict[bytes, tuple[str, int | None, bool]] = {}

    def valid(self, now: float) -> set[bytes]:
        return {
            digest
            for digest, (_, expires_at, revoked) in self.seen.items()
            if not revoked and (expires_at is None or expires_at > now)
        }


@given(st.lists(steps, max_size=25))
@settings(max_examples=60, deadline=None)
def test_ring_agrees_with_the_store(actions):
    asyncio.run(_play(actions))


async def _play(actions) -> None:
    database, clock, model = Database(":memory:"), Clock(), Model()
    store = SqliteKeyStore(database)
    switch = Switch(store)
    ring = KeyRing(switch, static_identities([FIXED]), now=clock)
    for action, value in [*actions, ("down", False), ("refresh", None)]:
        if action == "create":
            expires_at = None if value is None else int(clock.now) + value
            record, _ = issue_key(KeySpec(name="k", expires_at=expires_at), clock.now)
            await store.add(record)
            model.stored[record.digest] = (record.id, expires_at, False)
        elif action == "revoke" and model.stored:
            digest = list(model.stored)[value % len(model.stored)]
            key_id, expires_at, _ = model.stored[digest]
            await store.revoke(key_id, int(clock.now))
            model.stored[digest] = (key_id, expires_at, True)
        elif action == "wait":
            clock.now += value
        elif action == "down":
            switch.down = value
        elif action == "refresh":
            try:
                await ring.refresh()
                model.seen = dict(model.stored)
            except StoreDown:
                assert switch.down
        assert {digest for digest in model.stored if ring.find(digest)} == model.valid(clock.now)
        assert ring.find(FIXED) is not None
    await database.close()
