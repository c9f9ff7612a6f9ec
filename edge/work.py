"""What the thread that owns llama.cpp needs beside tokens: how to sample for a sequence; and what it counts."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from backends.text.constraint import Constraint
from edge.sampling import Sampler


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
    refused_steps: int = 0
    step_started: float = 0.0  # monotonic; 0 while no step runs
