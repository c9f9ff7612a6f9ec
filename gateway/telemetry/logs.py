"""Log lines on stderr: one JSON object each with the field names of the Elastic Common Schema (ECS 8), or text for people.

Each line carries the id of the request it belongs to. Prompts, answers and keys are never logged by anything in Baton, so
nothing here tries to redact them.
"""

import logging
import sys
import time
from collections.abc import Mapping
from contextvars import ContextVar
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Literal, TextIO

import msgspec

from gateway.telemetry.lines import LineHandler
from gateway.telemetry.tracing import current_trace

current_request_id: ContextVar[str | None] = ContextVar("current_request_id", default=None)

MAX_TEXT_CHARS = 8192
"""Longer messages and stack traces are cut, so that no client can fill a disk with one request."""

_encode = msgspec.json.Encoder(enc_hook=str).encode
_root = logging.getLogger()


class JsonFormatter(logging.Formatter):
    """One record as one JSON line. `extra={"fields": {...}}` adds fields."""

    def format(self, record: logging.LogRecord) -> str:
        """Render the record."""
        line = _head(record.created, record.levelname.lower(), record.name, record.getMessage()[:MAX_TEXT_CHARS])
        if record.exc_info and record.exc_info[0] is not None:
            line["error.type"] = record.exc_info[0].__name__
            line["error.stack_trace"] = self.formatException(record.exc_info)[-MAX_TEXT_CHARS:]
        line.update(_fields(record))
        return _to_json(line).decode()


class TextFormatter(logging.Formatter):
    """One record as a line for people."""

    def format(self, record: logging.LogRecord) -> str:
        """Render the record; control characters in the message are escaped, so that nobody can forge a line."""
        when = datetime.fromtimestamp(record.created).isoformat(sep=" ", timespec="milliseconds")
        message = record.getMessage()[:MAX_TEXT_CHARS]
        fields = "".join(f" {key}={value}" for key, value in _fields(record).items())
        request_id = current_request_id.get()
        where = f" [{request_id}]" if request_id else ""
        text = f"{when} {record.levelname:<7} {record.name}{where}: {_printable(message + fields)}"
        if record.exc_info and record.exc_info[0] is not None:
            text += "\n" + self.formatException(record.exc_info)[-MAX_TEXT_CHARS:]
        return text


def log_fields(logger: logging.Logger, level: int, message: str, fields: Mapping[str, object]) -> None:
    """Log a line like `logger.log(level, message, extra={"fields": fields})`, for a fraction of what that costs.

    The caller has asked `isEnabledFor`. It is fast where logs are JSON and go where `configure_logging` sent them; handlers and
    filters of single loggers do not see the line then.
    """
    handlers = _root.handlers
    handler = handlers[0] if handlers else None
    if type(handler) is LineHandler and type(handler.formatter) is JsonFormatter:
        line = _head(time.time(), logging.getLevelName(level).lower(), logger.name, message)
        line.update(fields)
        handler.write_soon(_to_json(line))
    else:
        logger.log(level, "%s", message, extra={"fields": fields})


def _head(created: float, level: str, logger: str, message: str) -> dict[str, Any]:
    line: dict[str, Any] = {
        "@timestamp": _timestamp(created),
        "log.level": level,
        "log.logger": logger,
        "message": message,
        "service.name": "baton",
    }
    request_id = current_request_id.get()
    if request_id is not None:
        line["http.request.id"] = request_id
    trace = current_trace.get()
    if trace is not None:
        line["trace.id"], line["span.id"] = trace.trace_id, trace.span_id
    return line


def _timestamp(created: float) -> str:
    milliseconds = int(created * 1000)
    return f"{_whole_second(milliseconds // 1000)}.{milliseconds % 1000:03}Z"


@lru_cache(maxsize=4)
def _whole_second(second: int) -> str:
    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def _to_json(line: Mapping[str, object]) -> bytes:
    try:
        return _encode(line)
    except UnicodeEncodeError:
        # Half a surrogate pair has no UTF-8 form; the line must come out all the same.
        return _encode({key: _encodable(value) for key, value in line.items()})


def _fields(record: logging.LogRecord) -> Mapping[str, object]:
    fields = getattr(record, "fields", None)
    return fields if isinstance(fields, Mapping) else {}


def _encodable(value: object) -> object:
    return value.encode("utf-8", "backslashreplace").decode() if isinstance(value, str) else value


def _printable(text: str) -> str:
    return text if text.isprintable() else "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def configure_logging(level: str, style: Literal["json", "text"], stream: TextIO | None = None) -> None:
    """Send all logs of the process to `stream` (stderr by default). Replaces what was configured before."""
    handler = LineHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter() if style == "json" else TextFormatter())
    _root.handlers[:] = [handler]
    _root.setLevel(level.upper())
    for noisy in ("httpx", "httpcore", "asyncio", "uvicorn", "uvicorn.error"):
        logger = logging.getLogger(noisy)
        logger.handlers[:] = []
        logger.propagate = True
        logger.setLevel(max(logging.WARNING, _root.level))
