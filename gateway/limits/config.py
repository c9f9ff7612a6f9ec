"""How limits are kept. What each key may use is in its own allowance."""

from typing import Annotated

from msgspec import Meta, Struct


class LimitsConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The section `[limits]`.

    `default_reservation` is how many tokens a request reserves for its answer when the client set no bound. `max_keys` bounds
    the keys that are remembered in memory. With Redis, a gateway that dies gives back its requests in flight after `lease_s`.
    """

    default_reservation: Annotated[int, Meta(ge=0, le=1_000_000)] = 1024
    max_keys: Annotated[int, Meta(ge=1, le=1_000_000)] = 10_000
    lease_s: Annotated[float, Meta(ge=1, le=3600)] = 30.0
