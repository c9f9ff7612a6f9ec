"""Names in the store: one tenant's ids become keys that no other tenant's ids can become."""

import hmac
import re
from hashlib import sha256

from gateway.context.errors import InvalidId

_ID = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)


def scoped_key(tenant: str, kind: str, name: bytes) -> bytes:
    """Derive the 32-byte key of something that belongs to a tenant.

    Args:
        kind: what it is (`conversation`), so that equal names of different kinds stay apart; without NUL.
        name: an id, or the description of a request, of any length.
    """
    # HMAC pads short keys with zeros, so a tenant ending in NUL would equal one without: hash first.
    owner = sha256(tenant.encode("utf-8", "surrogatepass")).digest()
    return hmac.digest(owner, kind.encode() + b"\0" + name, "sha256")


def checked_id(text: str, param: str) -> bytes:
    """Check an id that a client chose or quotes, and return its bytes.

    Raises:
        InvalidId: it is not 1 to 64 ASCII letters, digits, hyphens or underscores.
    """
    if _ID.fullmatch(text) is None:
        raise InvalidId(
            f"'{param}' must be 1 to 64 letters, digits, '-' or '_' (it has {len(text)} characters).",
            param=param,
            code="invalid_value",
        )
    return text.encode()
