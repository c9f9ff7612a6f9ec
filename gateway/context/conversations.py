"""Conversations that the gateway keeps for its clients, so that a turn need not repeat the turns before it.

A conversation is a list of opaque items, each the JSON of one message or output item. It grows at the end only, has a version
for optimistic locking, and is forgotten when it was not used for a while. It never loses its beginning: what would exceed a
bound is refused, because a model that silently sees less than the client sent gives wrong answers.
"""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from gateway.context.bounds import check_bounds
from gateway.context.config import ConversationConfig
from gateway.context.guard import telling
from gateway.context.items import pack, unpack
from gateway.context.logs import Bounds, LogStore, Segment
from gateway.context.scope import checked_id, scoped_key

_ITEMS = msgspec.msgpack.Decoder(tuple[bytes, ...])
_PARAM = "conversation"


class Conversation(NamedTuple):
    """A conversation as it was read. `version` counts the writes; times are Unix seconds."""

    id: str
    version: int
    items: tuple[bytes, ...]
    created_at: float
    expires_at: float


class Conversations:
    """The conversations of all tenants; an id means nothing outside its tenant.

    All methods raise `InvalidId` for an id that is not 1 to 64 letters, digits, hyphens or underscores, and
    `ContextUnavailable` when the store does not answer.
    """

    def __init__(self, store: LogStore, config: ConversationConfig) -> None:
        self._store = store
        self._ttl_s = config.ttl_s
        self._bounds = Bounds(config.max_items, config.max_bytes)

    async def get(self, tenant: str, id: str) -> Conversation | None:
        """Return a conversation, whose time to live begins anew; None when there is none, or no longer."""
        key = _key(tenant, id)
        with telling(_PARAM):
            log = await self._store.read(key, refresh_s=self._ttl_s)
            if log is None:
                return None
            parts = await unpack(log.segments, _ITEMS)
        items = tuple(item for part in parts for item in part)
        return Conversation(id, log.version, items, log.created_at, log.expires_at)

    async def append(self, tenant: str, id: str, items: Sequence[bytes], *, expected: int | None = None) -> int:
        """Add items at the end, all or none, and return the new version. A conversation begins with its first write.

        Args:
            items: may be empty: that creates a conversation, or only raises its version.
            expected: the version that was read; 0 for a conversation that must not exist yet, None for any.

        Raises:
            Conflict: the conversation has another version than `expected`.
            TooLarge: it would have too many items or bytes.
        """
        key = _key(tenant, id)
        size = sum(map(len, items))
        check_bounds(len(items), size, self._bounds, what="The conversation")
        with telling(_PARAM):
            data = await pack(list(items), size) if items else b""
            segment = Segment(data, len(items), size)
            return await self._store.append(key, segment, expected=expected, bounds=self._bounds, ttl_s=self._ttl_s)

    async def delete(self, tenant: str, id: str) -> bool:
        """Forget a conversation; says whether there was one."""
        key = _key(tenant, id)
        with telling(_PARAM):
            return await self._store.delete(key)


def _key(tenant: str, id: str) -> bytes:
    return scoped_key(tenant, _PARAM, checked_id(id, _PARAM))
