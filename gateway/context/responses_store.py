"""Answers of the Responses API that a client may read again, delete, or continue from.

Each response is kept with the whole list of items that a following turn continues from, not only with its own: then
`previous_response_id` costs one read, whatever the length of the chain, and deleting one response breaks no other.
"""

import msgspec
from msgspec import Struct

from gateway.context.bounds import check_bounds
from gateway.context.codec import Damaged
from gateway.context.config import ConversationConfig
from gateway.context.guard import telling
from gateway.context.items import pack, unpack
from gateway.context.logs import Bounds, LogStore, Segment
from gateway.context.scope import checked_id, scoped_key

_KIND = "response"


class StoredResponse(Struct, frozen=True, array_like=True):
    """One response.

    Attributes:
        id: as the client knows it.
        body: the response object's JSON.
        items: JSON of every input and output item so far, in order, this response's own included.
        previous: the id of the response that it continued.
    """

    id: str
    body: bytes
    items: tuple[bytes, ...] = ()
    previous: str | None = None


_RESPONSE = msgspec.msgpack.Decoder(StoredResponse)


class StoredResponses:
    """The stored responses of all tenants; an id means nothing outside its tenant.

    All methods raise `InvalidId` for an id that is not 1 to 64 letters, digits, hyphens or underscores, and
    `ContextUnavailable` when the store does not answer.

    Args:
        config: its `response_ttl_s` counts from the writing; its bounds hold for each response.
    """

    def __init__(self, store: LogStore, config: ConversationConfig) -> None:
        self._store = store
        self._ttl_s = config.response_ttl_s
        self._bounds = Bounds(config.max_items, config.max_bytes)

    async def put(self, tenant: str, response: StoredResponse) -> None:
        """Keep a response, in place of one that has the same id.

        Raises:
            TooLarge: it has too many items, or body and items have too many bytes.
        """
        key = _key(tenant, response.id)
        size = len(response.body) + sum(map(len, response.items))
        check_bounds(len(response.items), size, self._bounds, what="The stored response")
        with telling(_KIND):
            data = await pack(response, size)
            await self._store.put(key, Segment(data, len(response.items), size), ttl_s=self._ttl_s)

    async def get(self, tenant: str, id: str) -> StoredResponse | None:
        """Return a response; None when there is none, or no longer."""
        key = _key(tenant, id)
        with telling(_KIND):
            log = await self._store.read(key)
            if log is None:
                return None
            responses = await unpack(log.segments, _RESPONSE)
            if len(responses) != 1 or responses[0].id != id:
                raise Damaged("not the response that was asked for")
            return responses[0]

    async def delete(self, tenant: str, id: str) -> bool:
        """Forget a response; says whether there was one. Responses that continued it stay whole."""
        key = _key(tenant, id)
        with telling(_KIND):
            return await self._store.delete(key)


def _key(tenant: str, id: str) -> bytes:
    return scoped_key(tenant, _KIND, checked_id(id, "previous_response_id"))
