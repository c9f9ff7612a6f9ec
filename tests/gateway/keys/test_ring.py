"""The ring follows its store: created keys work, revoked and expired ones do not, and an outage changes nothing."""

import asyncio
import logging
from hashlib import sha256

import pytest

from gateway.keys.issue import issue_key
from gateway.keys.record import KeySpec
from gateway.keys.ring import TOUCH_INTERVAL_S, KeyRing
from gateway.keys.static import static_identities
from gateway.store.errors import StoreDown


def digest(key: str) -> bytes:
    return sha256(key.encode()).digest()


async def eventually(condition) -> None:
    for _ in range(2000):
        if condition():
            return
        await asyncio.sleep(0.005)
    pytest.fail("the condition did not come true in time")


async def test_created_key_is_found_and_revoked_key_is_not(store, clock):
    ring = KeyRing(store, now=clock)
    await ring.refresh()
    assert ring.is_open
    record, key = issue_key(KeySpec(name="k"), clock.now)
    await store.add(record)
    assert ring.find(digest(key)) is None
    await ring.refresh()
    assert not ring.is_open
    assert ring.find(digest(key)) == record.identity()
    assert ring.find(digest("other")) is None
    await store.revoke(record.id, 5)
    await ring.refresh()
    assert ring.find(digest(key)) is None


async def test_gateway_whose_last_key_was_revoked_stays_closed_also_after_a_restart(store, clock):
    record, _ = issue_key(KeySpec(name="k"), clock.now)
    await store.add(record)
    await store.revoke(record.id, 5)
    ring = KeyRing(store, now=clock)
    await ring.refresh()
    assert not ring.is_open


async def test_gateway_stays_closed_when_its_store_forgets_everything(make_store, database, clock):
    store = make_store()
    record, _ = issue_key(KeySpec(name="k"), clock.now)
    await store.add(record)
    ring = KeyRing(store, now=clock)
    await ring.refresh()
    if hasattr(store, "_redis"):
        await store._redis.call("FLUSHALL")
    else:
        await database.run(lambda connection: connection.execute("DELETE FROM keys"))
        await database.run(lambda connection: connection.execute("UPDATE keys_version SET version = 0"))
    await ring.refresh()
    assert ring.find(record.digest) is None
    assert not ring.is_open


async def test_key_expires_without_a_refresh(switch, clock):
    record, key = issue_key(KeySpec(name="k", expires_at=int(clock.now) + 10), clock.now)
    await switch.add(record)
    ring = KeyRing(switch, now=clock)
    await ring.refresh()
    clock.now += 9.9
    assert ring.find(digest(key)) is not None
    clock.now += 0.1
    assert ring.find(digest(key)) is None


async def test_unchanged_store_is_not_read_again(switch, clock):
    await switch.add(issue_key(KeySpec(name="k"), clock.now)[0])
    ring = KeyRing(switch, now=clock)
    switch.calls.clear()
    for _ in range(5):
        await ring.refresh()
    assert switch.calls == ["version", "all", *["version"] * 4]


async def test_last_known_keys_stay_valid_while_the_store_is_down(switch, clock, caplog):
    record, key = issue_key(KeySpec(name="k"), clock.now)
    await switch.add(record)
    ring = KeyRing(switch, refresh_s=0.005, now=clock)
    await ring.start()
    caplog.set_level(logging.INFO, "gateway.keys.ring")
    switch.down = True
    await eventually(lambda: switch.calls[-3:] == ["version"] * 3 and "is down" in caplog.text)
    assert ring.find(digest(key)) is not None
    with pytest.raises(StoreDown):
        await ring.refresh()
    switch.down = False
    await switch.revoke(record.id, 5)
    await eventually(lambda: ring.find(digest(key)) is None)
    await eventually(lambda: "is back" in caplog.text)
    # An outage is one line, however long it lasts.
    assert caplog.text.count("is down") == 1
    await ring.close()


async def test_bug_in_the_store_does_not_end_the_ring(switch, clock, caplog):
    ring = KeyRing(switch, refresh_s=0.005, now=clock)
    await ring.start()
    switch.broken = True
    await eventually(lambda: "could not be refreshed" in caplog.text)
    switch.broken = False
    record, key = issue_key(KeySpec(name="k"), clock.now)
    await switch.add(record)
    await eventually(lambda: ring.find(digest(key)) is not None)
    await ring.close()


async def test_store_that_is_down_at_the_start_neither_opens_the_gateway_nor_ends_it(switch, clock):
    switch.down = True
    ring = KeyRing(switch, static_identities([digest("fixed")]), refresh_s=0.005, now=clock)
    await ring.start()
    assert not ring.is_known
    assert not ring.is_open
    assert ring.find(digest("fixed")) is not None
    switch.down = False
    await eventually(lambda: ring.is_known)
    await ring.close()
    await ring.close()


async def test_unknown_ring_without_configured_keys_is_not_open(switch, clock):
    switch.down = True
    ring = KeyRing(switch, now=clock)
    await ring.start()
    assert not ring.is_open
    await ring.close()


@pytest.mark.parametrize(("static", "required", "is_open"), [([], False, True), ([b"d"], False, False), ([], True, False)])
def test_ring_without_a_store_is_open_only_without_keys(static, required, is_open):
    ring = KeyRing(static=static_identities(static), required=required)
    assert ring.is_known
    assert ring.is_open is is_open


async def test_uses_are_noted_once_a_minute_and_at_the_end(switch, clock):
    record, key = issue_key(KeySpec(name="k"), clock.now)
    await switch.add(record)
    ring = KeyRing(switch, static_identities([digest("fixed")]), refresh_s=0.005, now=clock)
    await ring.start()
    ring.find(digest(key))
    ring.find(digest("fixed"))
    switch.calls.clear()
    await eventually(lambda: len(switch.calls) >= 3)
    assert "touch" not in switch.calls
    clock.now += TOUCH_INTERVAL_S
    await eventually(lambda: "touch" in switch.calls)
    first = int(clock.now)
    await eventually(lambda: switch.calls[-1] != "touch")
    assert (await switch.get(record.id)).last_used_at == first
    clock.now += 5
    ring.find(digest(key))
    await ring.close()
    assert (await switch.get(record.id)).last_used_at == first + 5


async def test_use_of_configured_keys_writes_nothing(switch, clock, database):
    ring = KeyRing(switch, static_identities([digest("fixed")]), now=clock)
    await ring.start()
    ring.find(digest("fixed"))
    await ring.touch()
    await ring.close()
    assert "touch" not in switch.calls
    assert not database.exists()
