"""Checks a whole input file before any of it is run: one bad line, and nothing is."""

import asyncio

from gateway.batches.batch import Batch
from gateway.batches.config import BatchesConfig
from gateway.batches.folder import Folder, Position
from gateway.batches.lines import BadLine, is_blank, read_line
from gateway.schema.batches import BatchError

MAX_ERRORS = 100
_BREATH_LINES = 50


class Checked:
    """What was found so far: how many lines are requests, and what is wrong with the file."""

    def __init__(self) -> None:
        self.total = 0
        self.errors: list[BatchError] = []
        self._ids: set[str] = set()

    def add(self, line: int, custom_id: str) -> None:
        """Note a line that is good by itself. Raises BadLine when another one has the same name."""
        if custom_id in self._ids:
            text = f"The custom_id '{custom_id[:80]}' has been used by an earlier line."
            raise BadLine(line, "duplicate_custom_id", text, "custom_id")
        self._ids.add(custom_id)
        self.total += 1


async def validate(folder: Folder, batch: Batch, config: BatchesConfig) -> Checked:
    """Read the file from its beginning to its end, or to the hundredth error. Gives way to others in between.

    Raises:
        OSError: the file cannot be read.
    """
    checked, position = Checked(), Position()
    while len(checked.errors) < MAX_ERRORS and checked.total <= config.max_requests:
        raws, position = await folder.lines(batch.input_file_id, position, max_line_bytes=config.max_line_bytes)
        if not raws:
            break
        for raw in raws:
            if raw.number % _BREATH_LINES == 0:
                await asyncio.sleep(0)
            if is_blank(raw):
                continue
            try:
                line = read_line(raw, batch.endpoint, max_line_bytes=config.max_line_bytes)
                checked.add(line.number, line.custom_id)
            except BadLine as bad:
                checked.errors.append(bad.error)
    if checked.total > config.max_requests:
        text = f"The file has more than {config.max_requests} requests."
        checked.errors.append(BatchError(code="too_many_tasks", message=text))
    elif not checked.total and not checked.errors:
        checked.errors.append(BatchError(code="empty_file", message="The file holds no requests."))
    del checked.errors[MAX_ERRORS:]
    return checked
