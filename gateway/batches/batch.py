"""A batch and its life. Pure: every step takes a batch and returns the next one.

    validating ─┬─> failed                                the input file is at fault
                └─> in_progress ──> finalizing ─┬─> completed
                        │                       └─> expired     the window ended first
                        └─> cancelling ──> cancelled            also from validating

`total`, `completed` and `failed` count lines. Where a batch has ended in any way but `failed`, every line has a result, and
`completed + failed == total`.
"""

from collections.abc import Sequence
from uuid import uuid4

import msgspec
from msgspec import Struct

from gateway.batches.errors import Conflicting
from gateway.identity import Identity
from gateway.schema.batches import (
    BatchEndpoint,
    BatchError,
    BatchErrors,
    BatchObject,
    BatchRequest,
    BatchStatus,
    RequestCounts,
)

WINDOW_S = 24 * 3600
"""The one completion window that can be asked for."""

OPEN: frozenset[BatchStatus] = frozenset({"validating", "in_progress", "finalizing", "cancelling"})
"""States in which there is still something to do."""

_replace = msgspec.structs.replace


class Batch(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A batch as it is stored. Times are in Unix seconds. `identity` is who made it, and who its lines are run for.

    `output_bytes` counts all results; `output_expires_s` is how long the files with results are kept, None for the default.
    """

    id: str
    identity: Identity
    endpoint: BatchEndpoint
    input_file_id: str
    metadata: dict[str, str] | None = None
    output_expires_s: int | None = None
    status: BatchStatus = "validating"
    created_at: int
    expires_at: int
    in_progress_at: int | None = None
    finalizing_at: int | None = None
    completed_at: int | None = None
    failed_at: int | None = None
    expired_at: int | None = None
    cancelling_at: int | None = None
    cancelled_at: int | None = None
    total: int = 0
    completed: int = 0
    failed: int = 0
    output_bytes: int = 0
    output_file_id: str | None = None
    error_file_id: str | None = None
    errors: tuple[BatchError, ...] = ()

    @property
    def is_open(self) -> bool:
        """Whether there is still something to do."""
        return self.status in OPEN

    @property
    def is_stopping(self) -> bool:
        """Whether no further line may be run: it was cancelled, or results are being put together."""
        return self.status in ("cancelling", "finalizing")


def new_batch(identity: Identity, request: BatchRequest, now: int) -> Batch:
    """What a request makes."""
    expiry = request.output_expires_after
    return Batch(
        id=f"batch_{uuid4().hex}",
        identity=identity,
        endpoint=request.endpoint,
        input_file_id=request.input_file_id,
        metadata=request.metadata,
        output_expires_s=None if expiry is None else expiry.seconds,
        created_at=now,
        expires_at=now + WINDOW_S,
    )


def begin(batch: Batch, total: int, now: int) -> Batch:
    """The input file is good. A batch that was cancelled meanwhile stays so, and knows now how many lines it has."""
    if batch.status == "validating":
        return _replace(batch, status="in_progress", in_progress_at=now, total=total)
    return _replace(batch, total=total)


def refuse(batch: Batch, errors: Sequence[BatchError], now: int) -> Batch:
    """The input file is at fault, or gone."""
    return _replace(batch, status="failed", failed_at=now, errors=tuple(errors))


def count(batch: Batch, completed: int, failed: int, size: int) -> Batch:
    """Some lines have results, of `size` bytes together."""
    return _replace(
        batch,
        completed=batch.completed + completed,
        failed=batch.failed + failed,
        output_bytes=batch.output_bytes + size,
    )


def cancel(batch: Batch, now: int) -> Batch:
    """Ask for an early end; asking again changes nothing. Raises Conflicting when it is too late."""
    if batch.status == "cancelling":
        return batch
    if batch.status not in ("validating", "in_progress"):
        raise Conflicting(f"A batch with status '{batch.status}' cannot be cancelled.", "batch_not_cancellable")
    return _replace(batch, status="cancelling", cancelling_at=now)


def finalize(batch: Batch, now: int) -> Batch:
    """No further line is run. Lines that are left then have no time any more, unless the batch was cancelled."""
    if batch.is_stopping:
        return batch
    is_late = batch.completed + batch.failed < batch.total
    return _replace(batch, status="finalizing", finalizing_at=now, expired_at=now if is_late else None)


def finish(batch: Batch, output_file_id: str | None, error_file_id: str | None, now: int) -> Batch:
    """Every line has a result, and the results are in files."""
    files = {"output_file_id": output_file_id, "error_file_id": error_file_id}
    if batch.status == "cancelling":
        return _replace(batch, status="cancelled", cancelled_at=now, **files)
    if batch.expired_at is not None:
        return _replace(batch, status="expired", **files)
    return _replace(batch, status="completed", completed_at=now, **files)


def describe(batch: Batch) -> BatchObject:
    """What the API says about a batch."""
    return BatchObject(
        id=batch.id,
        endpoint=batch.endpoint,
        errors=BatchErrors(data=batch.errors) if batch.errors else None,
        input_file_id=batch.input_file_id,
        status=batch.status,
        output_file_id=batch.output_file_id,
        error_file_id=batch.error_file_id,
        created_at=batch.created_at,
        in_progress_at=batch.in_progress_at,
        expires_at=batch.expires_at,
        finalizing_at=batch.finalizing_at,
        completed_at=batch.completed_at,
        failed_at=batch.failed_at,
        expired_at=batch.expired_at,
        cancelling_at=batch.cancelling_at,
        cancelled_at=batch.cancelled_at,
        request_counts=RequestCounts(total=batch.total, completed=batch.completed, failed=batch.failed),
        metadata=batch.metadata,
    )
