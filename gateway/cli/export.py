"""`baton export`."""

import argparse
import sys

from backends.engine.jobs.messages import Exported, ExportJob
from gateway.cli.job import JobFailed, run_job

_MODULE = "backends.engine.jobs.export"


def run_export(arguments: argparse.Namespace) -> int:
    """Write the folder and say how large it is; the exit code is 1 when it could not be written."""
    job = ExportJob(path=arguments.model_path, folder=arguments.folder, dtype=arguments.dtype)
    try:
        exported = run_job(_MODULE, job, Exported)
    except JobFailed as error:
        print(f"baton: {error}", file=sys.stderr)
        return 1
    print(f"{arguments.folder}: {exported.files} files, {exported.size_bytes / 1e6:,.1f} MB")
    return 0
