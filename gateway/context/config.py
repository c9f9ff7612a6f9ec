"""How long and how much the gateway remembers."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

_MIB = 1 << 20
_DAY_S = 24 * 3600.0

Ttl = Annotated[float, Meta(ge=1, le=366 * _DAY_S)]


class ConversationConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The section `[conversations]`.

    Attributes:
        ttl_s: seconds without use after which a conversation is forgotten.
        max_items: messages and output items in one conversation or one stored response, 1 to 100,000.
        max_bytes: JSON bytes in one conversation or one stored response, 1 kB to 64 MiB.
        response_ttl_s: seconds after which a stored response is forgotten, used or not.
        store_bytes: what conversations may take in the SQLite file, and again what stored responses may take; the least
            recently used go first. Redis has its own limit (`maxmemory`).
    """

    ttl_s: Ttl = _DAY_S
    max_items: Annotated[int, Meta(ge=1, le=100_000)] = 2000
    max_bytes: Annotated[int, Meta(ge=1024, le=64 * _MIB)] = 8 * _MIB
    response_ttl_s: Ttl = 30 * _DAY_S
    store_bytes: Annotated[int, Meta(ge=64 * _MIB, le=1 << 44)] = 1024 * _MIB


class ResponseCacheConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The section `[response_cache]`: complete answers that are given again to the same request of the same tenant.

    Attributes:
        default: what happens without the header `x-baton-cache`: `auto` caches requests whose answer is determined
            (embeddings, temperature 0, or a seed), `off` only what asks for it by `use` or `refresh`.
        ttl_s: seconds for which an answer may be given again.
        memory_bytes: what answers may take in memory, least recently used first out; 0 keeps none there.
        max_entry_bytes: larger answers are not kept, 1 kB to 64 MiB.
        wait_s: how long a request waits for an equal one that is being answered, before it goes on by itself; 0 never waits.
        shared: also keep answers in the store, where other gateways and later runs find them.
        store_bytes: what they may take in the SQLite file.
    """

    default: Literal["auto", "off"] = "off"
    ttl_s: Ttl = 3600.0
    memory_bytes: Annotated[int, Meta(ge=0, le=1 << 40)] = 64 * _MIB
    max_entry_bytes: Annotated[int, Meta(ge=1024, le=64 * _MIB)] = 1 * _MIB
    wait_s: Annotated[float, Meta(ge=0, le=600)] = 10.0
    shared: bool = False
    store_bytes: Annotated[int, Meta(ge=64 * _MIB, le=1 << 44)] = 256 * _MIB
