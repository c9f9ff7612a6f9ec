"""The lines of input and output files: one JSON object each."""

from typing import NamedTuple
from uuid import uuid4

import msgspec
from msgspec import Raw, Struct

from gateway.batches.folder import RawLine
from gateway.schema.batches import BatchEndpoint, BatchError, InputLine, LineError, LineResponse, OutputLine

MAX_CUSTOM_ID_CHARS = 512

_encode = msgspec.json.Encoder().encode
_lines = msgspec.json.Decoder(InputLine)


class Line(NamedTuple):
    """A request that may be run. `body` is a JSON object."""

    number: int
    custom_id: str
    body: bytes


class _Body(Struct):
    """What is looked at in a request; its endpoint checks the rest."""

    stream: object = None


_bodies = msgspec.json.Decoder(_Body)


class BadLine(Exception):
    """A line that makes the whole file unusable."""

    def __init__(self, line: int, code: str, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.error = BatchError(code=code, message=message, param=param, line=line)


def is_blank(raw: RawLine) -> bool:
    """Whether a line holds nothing; such lines are passed over."""
    return raw.data is not None and not raw.data.strip()


def read_line(raw: RawLine, endpoint: BatchEndpoint, *, max_line_bytes: int) -> Line:
    """Check one line. Raises BadLine."""
    number, data = raw
    if data is None:
        raise BadLine(number, "line_too_long", f"This line has more than {max_line_bytes} bytes.")
    try:
        data.decode()
        line = _lines.decode(data)
    except msgspec.ValidationError:
        raise BadLine(number, "invalid_json_line", "This line is not a JSON object.") from None
    except (ValueError, RecursionError):
        raise BadLine(number, "invalid_json_line", "This line is not parseable as valid JSON.") from None
    custom_id = line.custom_id
    if not isinstance(custom_id, str) or not 1 <= len(custom_id) <= MAX_CUSTOM_ID_CHARS:
        text = f"'custom_id' must be a string of 1 to {MAX_CUSTOM_ID_CHARS} characters."
        raise BadLine(number, "invalid_custom_id", text, "custom_id")
    if line.method != "POST":
        raise BadLine(number, "invalid_method", "'method' must be 'POST'.", "method")
    if line.url != endpoint:
        raise BadLine(number, "url_mismatch", f"'url' must be '{endpoint}', the endpoint of the batch.", "url")
    return Line(number, custom_id, _check_body(number, bytes(line.body)))


def _check_body(number: int, body: bytes) -> bytes:
    try:
        asked = _bodies.decode(body)
    except (ValueError, RecursionError):
        raise BadLine(number, "invalid_body", "'body' must be a JSON object.", "body") from None
    if asked.stream:
        raise BadLine(number, "invalid_body", "'stream' cannot be true in a batch.", "body.stream")
    return body


def new_request_id() -> str:
    """An id for the call of a line."""
    return f"req_{uuid4().hex}"


def answered(custom_id: str, status: int, body: bytes, request_id: str) -> bytes:
    """The line for an answer, with its end. Raises `msgspec.DecodeError` when the body is no JSON."""
    # An upstream may send JSON over many lines.
    compact = Raw(msgspec.json.format(body, indent=-1))
    return _line(custom_id, LineResponse(status_code=status, request_id=request_id, body=compact), None)


def unanswered(custom_id: str, code: str, message: str) -> bytes:
    """The line for a request that has no answer, with its end."""
    return _line(custom_id, None, LineError(code=code, message=message))


def _line(custom_id: str, response: LineResponse | None, error: LineError | None) -> bytes:
    return _encode(OutputLine(id=f"batch_req_{uuid4().hex}", custom_id=custom_id, response=response, error=error)) + b"\n"
