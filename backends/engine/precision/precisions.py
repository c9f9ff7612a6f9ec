"""What was decided about the precisions of a model. Plain data."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Precisions:
    """In the terms of `LinearBuilder` and `read_words`.

    With `prefill` None the decode weights serve both phases. `crossover` is the number of rows up to which the decode weights
    are faster than those of the prefill; 0 where decoding never uses the latter.
    """

    prefill: str | None
    decode: str
    head: str
    crossover: int = 0
