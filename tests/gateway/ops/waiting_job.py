"""A job that never ends by itself: it writes a file when it is told to stop, so that a test sees that it could clean up."""

from pathlib import Path
from threading import Event

from backends.engine.jobs.messages import Exported, ExportJob, Progress
from backends.engine.jobs.program import Tell, run


def _wait(job: ExportJob, tell: Tell) -> Exported:
    try:
        tell(Progress(1, 2, "waiting"))
        Event().wait()
        raise AssertionError
    finally:
        Path(job.folder).write_text("cleaned up")


if __name__ == "__main__":
    run(ExportJob, _wait)
