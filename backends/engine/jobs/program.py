"""The program of a job: `run` is its body."""

import os
import sys
from collections.abc import Callable
from typing import NoReturn, TypeVar

import msgspec

from backends.child.errors import LoadError
from backends.engine.jobs.messages import Done, Failed, Message, Progress
from backends.errors import BackendError

JobT = TypeVar("JobT", bound=msgspec.Struct)
Tell = Callable[[Progress], None]

_INTERRUPTED = 130


class JobError(Exception):
    """The job cannot be done. The message is for the user."""


def run(job_type: type[JobT], work: Callable[[JobT, Tell], msgspec.Struct]) -> NoReturn:
    """Do the job that the command line holds, tell about it, and end the process.

    Args:
        work: does it and returns the result. May raise JobError, LoadError, MemoryError, or BackendError for a text that the
            model cannot read; and should import what may be missing itself, which is reported as well.
    """
    # Libraries that print to stdout do not get between the messages.
    channel = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())

    def tell(message: Message) -> None:
        rest = msgspec.json.encode(message) + b"\n"
        while rest:
            rest = rest[os.write(channel, rest) :]

    try:
        result = work(msgspec.json.decode(sys.argv[1], type=job_type), tell)
        tell(Done(msgspec.Raw(msgspec.json.encode(result))))
    except (JobError, LoadError, BackendError) as error:
        _fail(tell, str(error))
    except MemoryError:
        _fail(tell, "not enough memory")
    except ModuleNotFoundError as error:
        _fail(tell, f"this needs the package {error.name}, which is not installed")
    except BrokenPipeError:
        sys.exit(1)  # nobody waits for the result any more
    except KeyboardInterrupt:
        sys.exit(_INTERRUPTED)
    sys.exit(0)


def _fail(tell: Callable[[Message], None], message: str) -> NoReturn:
    try:
        tell(Failed(message))
    finally:
        sys.exit(1)
