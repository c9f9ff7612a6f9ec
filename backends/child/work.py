"""What passes between the thread that computes and those that talk: texts to embed, and what each step brought."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from backends.child.sequence import Sequence
from backends.errors import BackendError
from backends.types import Alternative


@dataclass(slots=True, frozen=True)
class Scored:
    """A token's log probability under the unmodified model, with the most likely alternatives, best first."""

    logprob: float
    top: tuple[Alternative, ...]


Finish = Literal["stop", "done", "length"]
"""`stop`: by a token that is no part of the text. `done`: the constraint is complete. `length`: no more tokens are allowed."""


@dataclass(slots=True)
class Sampled:
    """One new token of a sequence; `finish` says that it is the last, and why.

    A step may bring several tokens of one sequence: one event each, in order. Those behind the end of the answer are ignored.
    """

    sequence: Sequence
    token: int
    scored: Scored | None = None
    finish: Finish | None = None


@dataclass(slots=True, frozen=True)
class PromptScored:
    """Log probabilities of some prompt tokens: `scores[i]` belongs to token `start + i`."""

    sequence: Sequence
    start: int
    scores: list[Scored]


@dataclass(slots=True, frozen=True)
class Vectors:
    """The answer to an embedding job: little-endian float32, normalised."""

    request: int
    vectors: list[bytes]


@dataclass(slots=True, frozen=True)
class Broken:
    """A request ended with an error."""

    request: int
    error: BackendError


Event = Sampled | PromptScored | Vectors | Broken

Emit = Callable[[list[Event]], None]
"""Takes what a step brought, in order. Called by the thread that computes, and by no other at the same time."""


@dataclass(slots=True)
class EmbedJob:
    """Token lists to embed; `vectors` fills up in order."""

    request: int
    inputs: list[list[int]]
    vectors: list[bytes] = field(default_factory=list)
