"""/admin/keys: create, list, look at and revoke API keys. Only admins get here (`gateway.middleware.auth`)."""

from collections.abc import Awaitable
from typing import Any, TypeVar

import msgspec
from litestar import Request, delete, get, post
from litestar.di import NamedDependency
from litestar.params import FromPath, SkipValidation
from litestar.types import ASGIApp

from gateway.errors import NotReady
from gateway.keys.manager import KeyManager
from gateway.keys.record import KeySpec
from gateway.response import JsonReply
from gateway.routes.reply import read_body
from gateway.store.errors import StoreDown
from gateway.translate.body import Body

T = TypeVar("T")

KeyManagerDependency = NamedDependency[SkipValidation[KeyManager]]

_SPEC = Body(KeySpec)


@post("/admin/keys", status_code=200)
async def create_key(request: Request[Any, Any, Any], key_manager: KeyManagerDependency) -> ASGIApp:
    """Make a key; the answer holds it for the only time."""
    spec = await read_body(request, _SPEC)
    return JsonReply(msgspec.json.encode(await _stored(key_manager.create(spec))))


@get("/admin/keys")
async def list_keys(key_manager: KeyManagerDependency) -> ASGIApp:
    """Show all stored keys, also revoked and expired ones."""
    return JsonReply(msgspec.json.encode(await _stored(key_manager.list())))


@get("/admin/keys/{key_id:str}")
async def retrieve_key(key_id: FromPath[str], key_manager: KeyManagerDependency) -> ASGIApp:
    """Show one key."""
    return JsonReply(msgspec.json.encode(await _stored(key_manager.get(key_id))))


@delete("/admin/keys/{key_id:str}", status_code=200)
async def revoke_key(key_id: FromPath[str], key_manager: KeyManagerDependency) -> ASGIApp:
    """End a key for good; it stays in the list."""
    return JsonReply(msgspec.json.encode(await _stored(key_manager.revoke(key_id))))


async def _stored(work: Awaitable[T]) -> T:
    try:
        return await work
    except StoreDown:
        text = "The key store is down. Try again in a moment."
        raise NotReady(text, code="key_store_unavailable", headers={"retry-after": "2"}) from None
