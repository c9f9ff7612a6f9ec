"""Keys that the operator writes down: from files and variables, fixed for the life of the process and without limits."""

from collections.abc import Collection

from gateway.identity import Identity

_TENANT_BYTES = 16


def static_identities(keys: Collection[bytes], admin_keys: Collection[bytes] = ()) -> dict[bytes, Identity]:
    """Say who comes with each of these SHA-256 digests; a digest in both is an admin key. Each key is a tenant of its own."""
    return {digest: _identity(digest, digest in admin_keys) for digest in (*keys, *admin_keys)}


def _identity(digest: bytes, is_admin: bool) -> Identity:
    tenant = digest[:_TENANT_BYTES].hex()
    name = "configured admin key" if is_admin else "configured key"
    return Identity(key_id=f"static_{tenant}", tenant=tenant, name=name, priority="interactive", is_admin=is_admin)
