"""Runs a job of the torch engine in a process of its own: torch never comes into this one."""

import signal
import subprocess
import sys
from typing import IO, TypeVar

import msgspec

from backends.engine.jobs.messages import Done, Failed, Message, Progress
from gateway.cli.progress import ProgressLine

_INTERRUPTS, _PATIENCE_S = 3, 5.0

ResultT = TypeVar("ResultT", bound=msgspec.Struct)


class JobFailed(Exception):
    """There is no result. The message is for people."""


def run_job(module: str, job: msgspec.Struct, result_type: type[ResultT]) -> ResultT:
    """Run the program `module` with a job, show how far it is, and return its result.

    Raises:
        JobFailed: there is none.
    """
    command = (sys.executable, "-m", module, msgspec.json.encode(job).decode())
    # A process group of its own: Ctrl-C reaches only us, and the job is told once to clean up.
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, process_group=0) as process:
        assert process.stdout is not None
        try:
            outcome = _listen(process.stdout)
        except BaseException:
            _interrupt(process)
            raise
    match outcome:
        case Done(result):
            return msgspec.json.decode(result, type=result_type)
        case Failed(message):
            raise JobFailed(message)
    raise JobFailed(_ending(process.returncode))


def _interrupt(process: subprocess.Popen[bytes]) -> None:
    """Let a job clean up, and end it where it does not: Python loses an interrupt that comes while an object is finalised."""
    for _ in range(_INTERRUPTS):
        process.send_signal(signal.SIGINT)
        try:
            process.wait(_PATIENCE_S)
        except subprocess.TimeoutExpired:
            continue
        return
    process.kill()
    process.wait()


def _listen(stream: IO[bytes]) -> Message | None:
    """Show how far the job is until it ends, and return the last thing that it said."""
    message, decoder = None, msgspec.json.Decoder(Message)
    progress = ProgressLine(sys.stderr)
    try:
        for line in stream:
            message = decoder.decode(line)
            if isinstance(message, Progress):
                progress.show(message.done, message.total, message.what)
    finally:
        progress.close()
    return message


def _ending(code: int) -> str:
    if code == -signal.SIGKILL:
        return "the process that did the work was killed, most likely because the machine has too little memory"
    return f"the process that did the work ended with {f'signal {-code}' if code < 0 else f'exit code {code}'}"
