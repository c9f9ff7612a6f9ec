"""What every store of keys does, in SQLite and in a real Redis."""

import asyncio

import msgspec
import pytest

from gateway.identity import Allowance
from gateway.keys.build import build_key_store
from gateway.keys.config import KeysConfig
from gateway.keys.issue import issue_key
from gateway.keys.record import KeyRecord, KeySpec, encode_record, is_key_id
from gateway.keys.redis_store import RedisKeyStore
from gateway.keys.sqlite_store import SqliteKeyStore
from gateway.keys.store import TooManyKeys
from gateway.store.errors import StoreDown

FULL = KeySpec(
    name="Zoë's laptop",
    tenant="team-a",
    models=["b", "a"],
    priority="batch",
    weight=2.5,
    allowance=Allowance(requests_per_minute=1, tokens_per_minute=2, concurrency=3, budget_usd=4.5, budget_period="day"),
    is_admin=True,
    expires_at=1_900_000_000,
)


def record(created_at: int = 1000, spec: KeySpec | None = None) -> KeyRecord:
    return issue_key(spec or KeySpec(name="k"), created_at)[0]


async def test_new_store_is_empty(store):
    assert await store.version() == 0
    assert await store.all() == []
    assert await store.get("key_0123456789abcdef") is None
    assert await store.revoke("key_0123456789abcdef", 5) is None


async def test_looking_for_keys_creates_no_file(database):
    store = SqliteKeyStore(database)
    assert (await store.version(), await store.all(), await store.get("key_0123456789abcdef")) == (0, [], None)
    assert not database.exists()


async def test_record_comes_back_as_it_was(store):
    for kept in (record(), record(2000, FULL)):
        await store.add(kept)
        assert await store.get(kept.id) == kept
        assert is_key_id(kept.id)


async def test_all_are_listed_oldest_first_however_many(store):
    records = [record(created_at) for created_at in range(250)]
    for kept in reversed(records):
        await store.add(kept)
    assert await store.all() == records


async def test_version_changes_with_keys_and_not_with_their_use(make_store):
    here, elsewhere = make_store(), make_store()
    versions = [await here.version()]
    kept = record()
    await elsewhere.add(kept)
    versions.append(await here.version())
    await elsewhere.revoke(kept.id, 7)
    versions.append(await here.version())
    assert len(set(versions)) == 3
    await elsewhere.touch([kept.id], 8)
    await elsewhere.revoke(kept.id, 9)
    assert await here.version() == versions[-1]


async def test_revoking_again_keeps_the_first_time(store):
    kept = record()
    await store.add(kept)
    assert await store.revoke(kept.id, 7) == msgspec.structs.replace(kept, revoked_at=7)
    assert await store.revoke(kept.id, 9) == msgspec.structs.replace(kept, revoked_at=7)
    assert [found.revoked_at for found in await store.all()] == [7]


async def test_last_use_is_noted_of_keys_that_exist(store):
    kept, other = record(), record(2000)
    await store.add(kept)
    await store.add(other)
    await store.touch([kept.id, "key_0123456789abcdef"], 60)
    assert [found.last_used_at for found in await store.all()] == [60, None]


async def test_concurrent_additions_all_count(make_store):
    stores = [make_store() for _ in range(4)]
    records = [record(created_at) for created_at in range(40)]
    await asyncio.gather(*(stores[n % 4].add(kept) for n, kept in enumerate(records)))
    assert await stores[0].all() == records
    assert await stores[0].version() == 40


async def test_full_store_drops_the_key_revoked_first_and_else_refuses(make_store):
    store = make_store(max_keys=3)
    records = [record(created_at) for created_at in range(3)]
    for kept in records:
        await store.add(kept)
    with pytest.raises(TooManyKeys, match="3 keys are stored"):
        await store.add(record())
    await store.revoke(records[2].id, 5)
    await store.revoke(records[0].id, 6)
    await store.add(new := record(9))
    assert [found.id for found in await store.all()] == [records[0].id, records[1].id, new.id]
    assert await store.get(records[2].id) is None


async def test_one_unreadable_key_does_not_hide_the_others(make_store, database, caplog):
    store = make_store()
    good, bad = record(), record(2000)
    await store.add(good)
    await store.add(bad)
    later = encode_record(bad).replace(b"{", b'{"allowance":{"images_per_minute":1},', 1)
    if isinstance(store, RedisKeyStore):
        await store._redis.call("HSET", f"baton:{{keys}}:{bad.id}", "record", later)
    else:
        await database.run(lambda connection: connection.execute("UPDATE keys SET record = ? WHERE id = ?", (later, bad.id)))
    assert await store.all() == [good]
    assert "images_per_minute" in caplog.text
    with pytest.raises(StoreDown, match="cannot be read"):
        await store.get(bad.id)


async def test_no_store_holds_the_key_itself(store, database):
    kept, key = issue_key(FULL, 1000)
    await store.add(kept)
    raw = encode_record(kept)
    assert key.encode() not in raw
    if isinstance(store, SqliteKeyStore):
        dump = await database.read(lambda connection: "\n".join(connection.iterdump()))
        assert key not in dump
        assert key[len("sk-baton-") + 8 :] not in dump


def test_configuration_chooses_the_store(database):
    redis = object()
    assert isinstance(build_key_store(KeysConfig(), database, None), SqliteKeyStore)
    assert isinstance(build_key_store(KeysConfig(store="redis"), database, redis), RedisKeyStore)
    with pytest.raises(ValueError, match="no Redis server is configured"):
        build_key_store(KeysConfig(store="redis"), database, None)
