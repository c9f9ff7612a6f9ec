"""A job that never ends by itself and does not hear that it should."""

import signal
from threading import Event

from backends.engine.jobs.messages import Exported, ExportJob, Progress
from backends.engine.jobs.program import Tell, run


def _wait(job: ExportJob, tell: Tell) -> Exported:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    tell(Progress(1, 2, "waiting"))
    Event().wait()
    raise AssertionError


if __name__ == "__main__":
    run(ExportJob, _wait)
