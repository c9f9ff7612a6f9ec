"""One stored key: everything about it but the key, of which there is only a digest."""

import logging
import re
from collections.abc import Iterable
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from gateway.identity import Allowance, Identity
from gateway.priority import Priority
from gateway.store.errors import StoreDown

logger = logging.getLogger(__name__)

_TENANT = r"\A[A-Za-z0-9._-]{1,64}\Z"

ModelNames = Annotated[list[Annotated[str, Meta(min_length=1, max_length=128)]], Meta(min_length=1, max_length=256)]


class KeySpec(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What somebody asks for who creates a key.

    `models` None means all. Without `tenant` the key is a tenant of its own. `weight` is a share beside other keys, above 0 and
    at most 1000. `expires_at` is in Unix seconds.
    """

    name: Annotated[str, Meta(min_length=1, max_length=128)]
    tenant: Annotated[str, Meta(pattern=_TENANT)] | None = None
    models: ModelNames | None = None
    priority: Priority = "standard"
    weight: Annotated[float, Meta(gt=0, le=1000)] = 1.0
    allowance: Allowance = Allowance()
    is_admin: bool = False
    expires_at: Annotated[int, Meta(ge=0, le=253_402_300_799)] | None = None


class KeyRecord(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A key as it is stored. All times are in Unix seconds.

    `digest` is the SHA-256 of the whole key. `prefix` is the beginning of the key with the first 8 of its 43 random characters,
    for recognising it; 210 of its 256 bits stay secret. `last_used_at` is coarse: it may be a minute or two old.
    """

    id: str
    digest: bytes
    prefix: str
    name: str
    tenant: str
    models: tuple[str, ...] | None = None
    priority: Priority = "standard"
    weight: float = 1.0
    allowance: Allowance = Allowance()
    is_admin: bool = False
    created_at: int
    expires_at: int | None = None
    revoked_at: int | None = None
    last_used_at: int | None = None

    def identity(self) -> Identity:
        """Whom a request with this key comes from."""
        return Identity(
            key_id=self.id,
            tenant=self.tenant,
            name=self.name,
            models=None if self.models is None else frozenset(self.models),
            priority=self.priority,
            weight=self.weight,
            allowance=self.allowance,
            is_admin=self.is_admin,
        )


_DECODER = msgspec.json.Decoder(KeyRecord)
_KEY_ID = re.compile(r"key_[0-9a-f]{16}")


def is_key_id(text: str) -> bool:
    """Whether a client's text has the form of a key's id."""
    return _KEY_ID.fullmatch(text) is not None


def encode_record(record: KeyRecord) -> bytes:
    """Write what never changes after creation, as JSON; a store keeps `revoked_at` and `last_used_at` beside it."""
    return msgspec.json.encode(msgspec.structs.replace(record, revoked_at=None, last_used_at=None))


StoredRow = tuple[bytes, int | None, int | None]
"""An encoded record, and beside it `revoked_at` and `last_used_at`."""


def decode_records(rows: Iterable[StoredRow]) -> list[KeyRecord]:
    """Read stored records; one that cannot be read is logged and left out, so that the others can still be revoked."""
    records = []
    for row in rows:
        try:
            records.append(decode_record(row))
        except StoreDown as error:
            logger.error("a key is not valid here: %s", error)
    return records


def decode_record(row: StoredRow) -> KeyRecord:
    """Read a stored record.

    Raises:
        StoreDown: it is damaged, or limits something that this version does not know and so could not enforce.
    """
    raw, revoked_at, last_used_at = row
    try:
        record = _DECODER.decode(raw)
    except msgspec.MsgspecError as error:
        raise StoreDown(f"a stored key cannot be read: {error}") from None
    return msgspec.structs.replace(record, revoked_at=revoked_at, last_used_at=last_used_at)
