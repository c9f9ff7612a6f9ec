"""How much may be uploaded, how batches are worked off, and where the contents of files lie."""

from pathlib import Path
from typing import Annotated

from msgspec import Meta, Struct

from gateway.store.config import MEMORY

_MIB = 1 << 20
_DAY_S = 24 * 3600


class BatchesConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The section `[batches]`.

    Attributes:
        concurrency: lines that one process runs at the same time, all its batches together.
        max_attempts: how often a line is tried that is answered by 429 or 5xx. The waits in between grow to a minute.
        line_timeout_s: seconds after which a line that runs is given up.
        max_file_bytes: of one upload, which must also fit into `server.max_body_bytes`.
        max_tenant_bytes: of all files of a tenant. Output counts, but is never refused.
        max_tenant_files: files that a tenant may have when it uploads another.
        max_tenant_batches: unfinished batches of a tenant.
        max_requests: lines of a batch.
        max_line_bytes: of one line of an input file.
        max_output_bytes: of all answers of a batch; lines beyond it fail without being run.
        retention_s: how long files are kept; batches stay a day longer.
        lease_s: seconds after which another process takes over the batches of one that died.
    """

    concurrency: Annotated[int, Meta(ge=1, le=1024)] = 4
    max_attempts: Annotated[int, Meta(ge=1, le=100)] = 10
    line_timeout_s: Annotated[float, Meta(gt=0, le=_DAY_S)] = 3600.0
    max_file_bytes: Annotated[int, Meta(ge=1024, le=1 << 31)] = 100 * _MIB
    max_tenant_bytes: Annotated[int, Meta(ge=1024, le=1 << 44)] = 1024 * _MIB
    max_tenant_files: Annotated[int, Meta(ge=1, le=100_000)] = 1000
    max_tenant_batches: Annotated[int, Meta(ge=1, le=10_000)] = 100
    max_requests: Annotated[int, Meta(ge=1, le=1_000_000)] = 50_000
    max_line_bytes: Annotated[int, Meta(ge=1024, le=64 * _MIB)] = _MIB
    max_output_bytes: Annotated[int, Meta(ge=1024, le=1 << 40)] = 1024 * _MIB
    retention_s: Annotated[int, Meta(ge=3600, le=3660 * _DAY_S)] = 30 * _DAY_S
    lease_s: Annotated[float, Meta(ge=1, le=600)] = 15.0


def files_folder(database_path: str) -> Path | None:
    """The folder that belongs to a database: `batches` beside it; None for a database in memory."""
    return None if database_path == MEMORY else Path(database_path).parent / "batches"
