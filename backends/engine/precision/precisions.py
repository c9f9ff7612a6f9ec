"""What was decided about the precisions of a model. Plain data."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Precisions:
    """In the terms of `LinearBuilder` and `read_words`. With `prefill` None the decode weights serve both phases."""

    prefill: str | None
    decode: str
    head: str
