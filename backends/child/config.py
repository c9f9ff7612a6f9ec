"""What can be set about any model that an engine serves from a child process. Plain data, understood on both sides."""

from typing import Annotated

from msgspec import Meta, Struct

Count = Annotated[int, Meta(ge=1)]
Seconds = Annotated[float, Meta(gt=0)]


class ChildConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One model; each engine adds settings of its own in a subclass.

    `slots` choices are generated at once, `queue` more may wait. `max_memory_bytes` bounds the child's address space, 0 does
    not. A child that loads for longer than `load_timeout_s` is given up. `hang_timeout_s` is the longest silence of the child,
    `step_timeout_s` the longest single step; after `max_crashes` in `crash_window_s` the model is given up for that long.
    """

    path: str
    slots: Annotated[int, Meta(ge=1, le=64)] = 8
    queue: Annotated[int, Meta(ge=0)] = 256
    max_memory_bytes: Annotated[int, Meta(ge=0)] = 0
    load_timeout_s: Seconds = 300.0
    hang_timeout_s: Seconds = 10.0
    step_timeout_s: Seconds = 120.0
    max_crashes: Count = 5
    crash_window_s: Seconds = 300.0
