"""What passes between the thread that owns llama.cpp and the thread that talks: work to do, and what each step brought."""

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from backends.errors import BackendError
from backends.text.constraint import Constraint
from backends.types import Alternative
from edge.sampling import Sampler
from edge.sequence import Sequence


@dataclass(slots=True, kw_only=True)
class Work:
    """How to sample for one sequence, and when it ends.

    `limit` is the most tokens, prompt included, that it may ever have. `end_tokens` end it unseen. `logprobs` is None, or the
    number of alternatives wanted.
    """

    sampler: Sampler
    max_new: int
    limit: int
    end_tokens: frozenset[int]
    banned: npt.NDArray[np.intp] | None = None  # tokens that must not be sampled (end of text, when it is to be ignored)
    constraint: Constraint | None = None
    logprobs: int | None = None
    restarts: int = 0


@dataclass(slots=True, frozen=True)
class Scored:
    """A token's log probability under the unmodified model, with the most likely alternatives."""

    logprob: float
    top: tuple[Alternative, ...]


@dataclass(slots=True)
class Sampled:
    """One new token of a sequence; `finish` ends it (`stop`: the token itself is not part of the text)."""

    sequence: Sequence
    token: int
    scored: Scored | None = None
    finish: str | None = None


@dataclass(slots=True, frozen=True)
class PromptScored:
    """Log probabilities of some prompt tokens: `scores[i]` belongs to token `start + i`."""

    sequence: Sequence
    start: int
    scores: list[Scored]


@dataclass(slots=True, frozen=True)
class Vectors:
    """The answer to an embedding job."""

    request: int
    vectors: list[bytes]


@dataclass(slots=True, frozen=True)
class Broken:
    """A request ended with an error."""

    request: int
    error: BackendError


Event = Sampled | PromptScored | Vectors | Broken


@dataclass(slots=True)
class EmbedJob:
    """Token lists to embed; `vectors` fills up in order."""

    request: int
    inputs: list[list[int]]
    vectors: list[bytes] = field(default_factory=list)


@dataclass(slots=True)
class Figures:
    """Counters of the owner thread for `/metrics`. Written there, read anywhere.

    `step_native_seconds` is the wall time of `llama_decode`; `step_host_seconds` the CPU time of everything else in a step,
    copies of snapshots left out: planning, sampling, text, messages.
    """

    steps: int = 0
    step_native_seconds: float = 0.0
    step_host_seconds: float = 0.0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    decoded_tokens: int = 0
    step_tokens: int = 0
    embedded_tokens: int = 0
    refused_steps: int = 0
    step_started: float = 0.0  # monotonic; 0 while no step runs
