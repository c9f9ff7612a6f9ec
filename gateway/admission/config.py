"""How many requests of one model run at once, and how many wait for how long."""

from typing import Annotated

from msgspec import Meta, Struct


class AdmissionConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The bounds of one queue.

    `max_running` counts units (choices, not requests); 0 means unlimited, and then nobody ever waits. `max_waiting` counts
    requests. A request waits `max_wait_s` at most, or up to its own deadline where that is sooner.
    """

    max_running: Annotated[int, Meta(ge=0, le=1_000_000)] = 0
    max_waiting: Annotated[int, Meta(ge=0, le=10_000)] = 256
    max_wait_s: Annotated[float, Meta(gt=0, le=86400)] = 300.0
