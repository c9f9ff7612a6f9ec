"""What a job is asked for, and what it tells. Understood on both sides: importing this loads no torch.

A job is a program with one argument, its own struct as JSON. It writes a line of JSON for every message: any number of
`Progress`, then `Done` or `Failed`.
"""

from typing import Literal

from msgspec import Raw, Struct

from backends.engine.evaluation.choice import Choice


class EvaluationJob(Struct, frozen=True, kw_only=True):
    """Evaluate the model at `path`; the result is a `backends.engine.evaluation.report.Report`.

    `texts` are files, none for the built-in ones; of each `tokens` are read. `threads` 0 is what cores, affinity and cgroup
    allow.
    """

    path: str
    texts: list[str]
    choices: list[Choice]
    tokens: int
    threads: int = 0


class ExportJob(Struct, frozen=True, kw_only=True):
    """Write the model at `path` as a Hugging Face folder; the result is `Exported`."""

    path: str
    folder: str
    dtype: Literal["bf16", "fp16", "fp32"]


class Exported(Struct, frozen=True, kw_only=True):
    """What was written."""

    files: int
    size_bytes: int


class Progress(Struct, frozen=True, tag="progress"):
    """How much is done, in any unit, and what is being done."""

    done: int
    total: int
    what: str


class Done(Struct, frozen=True, tag="done"):
    """The result, as JSON."""

    result: Raw


class Failed(Struct, frozen=True, tag="failed"):
    """Why there is no result, for the user."""

    message: str


Message = Progress | Done | Failed
