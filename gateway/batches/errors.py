"""What can go wrong with files and batches, as answers to the client.

    ApiError
    ├── InvalidRequest
    │   ├── StorageFull             400  more bytes, files or batches than a tenant may have
    │   ├── UnknownFile             404  no file with that id, for this tenant
    │   ├── UnknownBatch            404  no batch with that id, for this tenant
    │   ├── Conflicting             409  not in this state: a file in use, a batch that has ended
    │   └── FileTooLarge            413  an upload over the limit
    └── StorageUnavailable      503  the disk or the database does not answer

Both official SDKs repeat a 409 by themselves, which cannot help here; a header tells them so.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from gateway.errors import ApiError, InvalidRequest
from gateway.store.errors import StoreDown

logger = logging.getLogger(__name__)


class StorageFull(InvalidRequest):
    """The tenant has used up what it may store."""

    code = "storage_limit_exceeded"


class UnknownFile(InvalidRequest):
    """No such file, or somebody else's."""

    status = 404
    code = "file_not_found"

    def __init__(self, id: str, param: str = "file_id") -> None:
        super().__init__(f"No file has the id '{id[:80]}'.", param=param)


class UnknownBatch(InvalidRequest):
    """No such batch, or somebody else's."""

    status = 404
    code = "batch_not_found"

    def __init__(self, id: str) -> None:
        super().__init__(f"No batch has the id '{id[:80]}'.", param="batch_id")


class Conflicting(InvalidRequest):
    """Possible in another state, but not in this one."""

    status = 409

    def __init__(self, message: str, code: str) -> None:
        super().__init__(message, code=code, headers={"x-should-retry": "false"})


class FileTooLarge(InvalidRequest):
    """An upload over the limit."""

    status = 413
    code = "file_too_large"

    def __init__(self, size: int, limit: int) -> None:
        super().__init__(f"The file has {size} bytes, the limit is {limit} bytes.", param="file")


class StorageUnavailable(ApiError):
    """Files and batches cannot be read or written now."""

    status = 503
    code = "storage_unavailable"


@contextmanager
def telling() -> Iterator[None]:
    """Run a step that needs the database or the disk. Raises StorageUnavailable when either fails."""
    try:
        yield
    except (StoreDown, OSError) as error:
        logger.error("files and batches cannot be reached: %s", error)
        text = "Files and batches cannot be reached at the moment. Try again in a moment."
        raise StorageUnavailable(text, headers={"retry-after": "2"}) from error
