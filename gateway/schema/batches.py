"""Files and batches on the wire, and the lines of their files.

Source: OpenAI API reference, "Files" and "Batch"; the guide "Batch API" for the lines.
"""

from typing import Annotated, Literal

from msgspec import Meta, Raw, Struct

from gateway.schema.scalars import Metadata

FilePurpose = Literal["batch", "batch_output"]
BatchEndpoint = Literal["/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/responses"]
BatchStatus = Literal["validating", "failed", "in_progress", "finalizing", "completed", "expired", "cancelling", "cancelled"]

MIN_EXPIRY_S = 3600
MAX_EXPIRY_S = 30 * 24 * 3600
ExpirySeconds = Annotated[int, Meta(ge=MIN_EXPIRY_S, le=MAX_EXPIRY_S)]


class FileObject(Struct, frozen=True, kw_only=True):
    """A file without its contents. Times are in Unix seconds."""

    id: str
    object: Literal["file"] = "file"
    bytes: int
    created_at: int
    expires_at: int
    filename: str
    purpose: FilePurpose
    status: Literal["processed"] = "processed"
    status_details: None = None


class FilePage(Struct, frozen=True, kw_only=True):
    """A part of a list of files."""

    object: Literal["list"] = "list"
    data: list[FileObject]
    first_id: str | None
    last_id: str | None
    has_more: bool


class FileDeleted(Struct, frozen=True, kw_only=True):
    """A file that is gone."""

    id: str
    object: Literal["file"] = "file"
    deleted: bool = True


class ExpiresAfter(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """When files are removed by themselves."""

    anchor: Literal["created_at"]
    seconds: ExpirySeconds


class BatchRequest(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The body of POST /v1/batches."""

    input_file_id: Annotated[str, Meta(min_length=1, max_length=128)]
    endpoint: BatchEndpoint
    completion_window: Literal["24h"]
    metadata: Metadata | None = None
    output_expires_after: ExpiresAfter | None = None


class BatchError(Struct, frozen=True, kw_only=True):
    """What is wrong with an input file; `line` counts from 1 and is None where the whole file is at fault."""

    code: str
    message: str
    param: str | None = None
    line: int | None = None


class BatchErrors(Struct, frozen=True, kw_only=True):
    """The first 100 of them."""

    object: Literal["list"] = "list"
    data: tuple[BatchError, ...]


class RequestCounts(Struct, frozen=True, kw_only=True):
    """How many lines there are, were answered well, and were not."""

    total: int
    completed: int
    failed: int


class BatchObject(Struct, frozen=True, kw_only=True):
    """A batch. Times are in Unix seconds, and null for what has not happened."""

    id: str
    object: Literal["batch"] = "batch"
    endpoint: str
    errors: BatchErrors | None
    input_file_id: str
    completion_window: Literal["24h"] = "24h"
    status: BatchStatus
    output_file_id: str | None
    error_file_id: str | None
    created_at: int
    in_progress_at: int | None
    expires_at: int
    finalizing_at: int | None
    completed_at: int | None
    failed_at: int | None
    expired_at: int | None
    cancelling_at: int | None
    cancelled_at: int | None
    request_counts: RequestCounts
    metadata: dict[str, str] | None


class BatchPage(Struct, frozen=True, kw_only=True):
    """A part of a list of batches."""

    object: Literal["list"] = "list"
    data: list[BatchObject]
    first_id: str | None
    last_id: str | None
    has_more: bool


class InputLine(Struct, frozen=True):
    """A request inside an input file, before it is checked; anything may stand there."""

    custom_id: object = None
    method: object = None
    url: object = None
    body: Raw = Raw()


class LineResponse(Struct, frozen=True, kw_only=True):
    """What the endpoint answered, errors included."""

    status_code: int
    request_id: str
    body: Raw


class LineError(Struct, frozen=True, kw_only=True):
    """Why a request has no answer of an endpoint."""

    code: str
    message: str


class OutputLine(Struct, frozen=True, kw_only=True):
    """A result. Answers with status 200 stand in the output file, everything else in the error file."""

    id: str
    custom_id: str
    response: LineResponse | None
    error: LineError | None
