"""How a key is made, and what is kept of it."""

import re
from hashlib import sha256

import pytest

from gateway.errors import InvalidRequest
from gateway.identity import Allowance, Identity
from gateway.keys.issue import issue_key
from gateway.keys.record import KeySpec, encode_record
from gateway.keys.static import static_identities
from gateway.keys.view import view_key


def test_key_is_random_and_known_by_digest_and_prefix_only():
    record, key = issue_key(KeySpec(name="k"), 1000.9)
    assert re.fullmatch(r"sk-baton-[A-Za-z0-9_-]{43}", key)
    assert record.digest == sha256(key.encode()).digest()
    assert record.prefix == key[:17]
    assert record.created_at == 1000
    assert issue_key(KeySpec(name="k"), 1000)[1] != key
    for kept in (repr(record), encode_record(record).decode(), repr(view_key(record, 0))):
        assert key[17:] not in kept


def test_key_without_a_tenant_is_one():
    record, _ = issue_key(KeySpec(name="k"), 0)
    assert record.tenant == record.id
    assert issue_key(KeySpec(name="k", tenant="team"), 0)[0].tenant == "team"


def test_identity_is_what_was_asked_for():
    allowance = Allowance(concurrency=3)
    spec = KeySpec(name="k", tenant="t", models=["a"], priority="batch", weight=2, allowance=allowance, is_admin=True)
    record, _ = issue_key(spec, 0)
    assert record.identity() == Identity(
        key_id=record.id,
        tenant="t",
        name="k",
        models=frozenset({"a"}),
        priority="batch",
        weight=2,
        allowance=allowance,
        is_admin=True,
    )


@pytest.mark.parametrize(
    ("spec", "param"),
    [
        (KeySpec(name="k", expires_at=1000), "expires_at"),
        (KeySpec(name="k", allowance=Allowance(budget_usd=float("inf"))), "allowance.budget_usd"),
    ],
)
def test_useless_key_is_not_made(spec, param):
    with pytest.raises(InvalidRequest) as refused:
        issue_key(spec, 1000)
    assert refused.value.param == param


def test_configured_keys_have_no_limits_and_tenants_of_their_own():
    user, admin = sha256(b"user").digest(), sha256(b"admin").digest()
    found = static_identities({user, admin}, {admin})
    assert set(found) == {user, admin}
    assert [found[digest].is_admin for digest in (user, admin)] == [False, True]
    assert found[user].tenant == user[:16].hex()
    assert (found[user].priority, found[user].models, found[user].allowance) == ("interactive", None, Allowance())
    assert found[user].key_id != found[admin].key_id
