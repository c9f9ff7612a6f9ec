"""Makes a key: `sk-baton-` and 32 random bytes, shown once and then known only by its digest.

The digest is one plain SHA-256. Slow hashes (bcrypt, Argon2) protect secrets that people choose, because those can be guessed;
nobody guesses 256 random bits, however fast each try is, and a slow hash would cost every request milliseconds.
"""

from hashlib import sha256
from math import isfinite
from secrets import token_hex, token_urlsafe

from gateway.errors import InvalidRequest
from gateway.keys.record import KeyRecord, KeySpec

KEY_PREFIX = "sk-baton-"
_SECRET_BYTES = 32
_SHOWN_CHARS = 8


def issue_key(spec: KeySpec, now: float) -> tuple[KeyRecord, str]:
    """Make a record to store and the key itself, which is nowhere else. `now` is in Unix seconds.

    Raises:
        InvalidRequest: it would have expired already, or has a budget without end.
    """
    if spec.expires_at is not None and spec.expires_at <= now:
        text = f"'expires_at' must be in the future: it is {spec.expires_at}, now is {int(now)} (Unix seconds)."
        raise InvalidRequest(text, param="expires_at", code="invalid_value")
    if not isfinite(spec.allowance.budget_usd):
        text = "'allowance.budget_usd' must be a finite number (0 means no limit)."
        raise InvalidRequest(text, param="allowance.budget_usd", code="invalid_value")
    key = KEY_PREFIX + token_urlsafe(_SECRET_BYTES)
    key_id = f"key_{token_hex(8)}"
    record = KeyRecord(
        id=key_id,
        digest=sha256(key.encode()).digest(),
        prefix=key[: len(KEY_PREFIX) + _SHOWN_CHARS],
        name=spec.name,
        tenant=spec.tenant or key_id,
        models=None if spec.models is None else tuple(spec.models),
        priority=spec.priority,
        weight=spec.weight,
        allowance=spec.allowance,
        is_admin=spec.is_admin,
        created_at=int(now),
        expires_at=spec.expires_at,
    )
    return record, key
