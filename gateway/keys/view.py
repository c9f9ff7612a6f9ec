"""A key as it is shown to admins: never the key, never its digest."""

from typing import Any, Literal

import msgspec
from msgspec import Struct

from gateway.identity import Allowance
from gateway.keys.record import KeyRecord
from gateway.priority import Priority

State = Literal["active", "expired", "revoked"]


class KeyView(Struct, frozen=True, kw_only=True):
    """One key. Times are in Unix seconds; `models` None means all; `prefix` is how the key begins."""

    id: str
    object: str = "key"
    prefix: str
    name: str
    tenant: str
    models: tuple[str, ...] | None
    priority: Priority
    weight: float
    allowance: Allowance
    is_admin: bool
    state: State
    created_at: int
    expires_at: int | None
    revoked_at: int | None
    last_used_at: int | None


class CreatedKey(KeyView, frozen=True, kw_only=True):
    """A key just made, with the key itself, for the only time."""

    key: str


class KeyList(Struct, frozen=True, kw_only=True):
    """All keys, oldest first."""

    object: str = "list"
    data: list[KeyView]


def state_of(record: KeyRecord, now: float) -> State:
    """Whether the key is good at `now` (Unix seconds), and if not, why."""
    if record.revoked_at is not None:
        return "revoked"
    return "expired" if record.expires_at is not None and record.expires_at <= now else "active"


def view_key(record: KeyRecord, now: float) -> KeyView:
    """Show a stored key as it is at `now` (Unix seconds)."""
    return KeyView(**_fields(record, now))


def view_created_key(record: KeyRecord, key: str, now: float) -> CreatedKey:
    """Show a key that was just made, and the key itself."""
    return CreatedKey(**_fields(record, now), key=key)


def _fields(record: KeyRecord, now: float) -> dict[str, Any]:
    fields = msgspec.structs.asdict(record)
    del fields["digest"]
    return {**fields, "state": state_of(record, now)}
