"""What went wrong upstream, said in the words of `backends.errors`.

The message of the upstream is kept, because only it knows what is wrong with a request, but cut short, and never where it
speaks of credentials: those are ours, not the client's. HTML pages of proxies in between are not repeated.
Source: OpenAI API reference, "Error codes"; the shapes of vLLM, SGLang, llama-server, TGI and FastAPI were looked up.
"""

import math
import re
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Any

import httpx
import msgspec

from backends.errors import (
    BackendError,
    ContextOverflow,
    Failed,
    ModelNotFound,
    Overloaded,
    Rejected,
    TimedOut,
    Unavailable,
)

MAX_MESSAGE_CHARS = 500
_MAX_WORD_CHARS = 128
_MAX_RETRY_AFTER_S = 3600.0

_OVERFLOW_CODES = {"context_length_exceeded", "exceed_context_size_error"}
_OVERFLOW = re.compile(
    r"maximum context length|(?:model'?s|available|the) context (?:length|size|window)|context[ _](?:length|window)[ _]exceed"
    r"|(?:prompt|input|request) is too long|too many (?:input |prompt )?tokens|exceeds? (?:the )?(?:maximum )?context"
    r"|`?inputs`? (?:tokens|must have less than)",
    re.IGNORECASE,
)
_QUOTA_CODES = {"insufficient_quota", "billing_hard_limit_reached", "quota_exceeded"}


def upstream_timeout(text: str) -> TimedOut:
    """A phase took longer than it may."""
    return TimedOut(text, code="upstream_timeout")


def protocol_error(text: str) -> Failed:
    """The answer is not what the protocol asks for."""
    return Failed(text, code="upstream_protocol_error")


def empty_answer() -> Failed:
    """The answer ended before it said anything."""
    return Failed("The upstream server ended its answer without any output.", code="upstream_empty")


def from_status(status: int, headers: Mapping[str, str], body: bytes) -> BackendError:
    """Say what an answer other than a success means.

    Args:
        headers: of the answer, with lower-case names.
        body: its first bytes.
    """
    said = _read_body(body)
    code, message = said.code, said.message or f"The upstream server answered {status}."
    retry_after_s = retry_after(headers)
    if status in (400, 413, 422):
        return _rejected(status, said, message)
    if status in (401, 403):
        return Unavailable("The upstream server refused the credentials of this gateway.", code="upstream_auth_failed")
    if status in (404, 410):
        if code == "model_not_found" or re.search(r"\bmodel\b", said.message, re.IGNORECASE):
            return ModelNotFound(message, param="model")
        return Unavailable(f"The upstream server has no such endpoint: it answered {status}.", code="upstream_not_found")
    if code in _QUOTA_CODES or status == 402:
        return Unavailable("The quota of this gateway at the upstream server is used up.", code="upstream_quota_exceeded")
    if status in (408, 504):
        return TimedOut(message, code="upstream_timeout")
    if status in (429, 529) or (status == 503 and code in ("engine_overloaded", "overloaded_error")):
        return Overloaded(message, code="upstream_overloaded", retry_after_s=retry_after_s)
    if status == 503:
        return Unavailable(message, code="upstream_unavailable", retry_after_s=retry_after_s)
    if 300 <= status < 400:
        return protocol_error(f"The upstream server answered with a redirect ({status}), which is not followed.")
    return Failed(message, code="upstream_error")


def from_event(error: Any) -> BackendError:
    """Say what the `error` member of an event or of a body means that came with status 200."""
    said = _read_error(error)
    message = said.message or "The upstream server reported an error."
    status = said.status
    if status is not None and 400 <= status < 600:
        return from_status(status, {}, msgspec.json.encode({"error": {"message": message, "code": said.code}}))
    if said.code in _OVERFLOW_CODES or said.type in _OVERFLOW_CODES or _OVERFLOW.search(message):
        return ContextOverflow(message)
    if said.type == "invalid_request_error":
        return Rejected(message, param=said.param, code=said.code)
    if said.code in ("engine_overloaded", "rate_limit_exceeded") or said.type == "overloaded_error":
        return Overloaded(message, code="upstream_overloaded")
    return Failed(message, code="upstream_error")


def from_transport(error: httpx.TransportError) -> BackendError:
    """Say what an exception of the HTTP client means; its text may name internal addresses, so it is not repeated."""
    if isinstance(error, httpx.PoolTimeout):
        return Overloaded("All connections to the upstream server are in use.", code="upstream_overloaded")
    if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout | httpx.UnsupportedProtocol | httpx.ProxyError):
        return Unavailable("The upstream server cannot be reached.", code="upstream_unreachable")
    if isinstance(error, httpx.TimeoutException):
        return upstream_timeout("The upstream server took too long.")
    if isinstance(error, httpx.ProtocolError):
        return protocol_error("The upstream server broke off its answer or did not keep to HTTP.")
    return Failed("The connection to the upstream server was lost.", code="upstream_connection_lost")


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds to wait by `retry-after-ms` or `retry-after` (seconds or a date); None when unknown, at most an hour."""
    for name, scale in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        text = headers.get(name)
        if text is None:
            continue
        try:
            wait_s = float(text) / scale
        except ValueError:
            wait_s = _seconds_until(text)
        if math.isfinite(wait_s) and wait_s >= 0:
            return min(wait_s, _MAX_RETRY_AFTER_S)
    return None


def _seconds_until(date: str) -> float:
    try:
        return parsedate_to_datetime(date).timestamp() - time.time()
    except (ValueError, OverflowError):
        return math.nan


class _Said(msgspec.Struct):
    """What an error body tells, as far as it could be read."""

    message: str = ""
    type: str | None = None
    param: str | None = None
    code: str | None = None
    status: int | None = None


def _rejected(status: int, said: _Said, message: str) -> BackendError:
    if said.code in _OVERFLOW_CODES or said.type in _OVERFLOW_CODES or _OVERFLOW.search(said.message):
        return ContextOverflow(message)
    default = "request_too_large" if status == 413 else None
    return Rejected(message, param=said.param, code=said.code or default)


def _read_body(body: bytes) -> _Said:
    try:
        return _read_error(msgspec.json.decode(body))
    except (ValueError, RecursionError):
        text = body.decode("utf-8", "replace").strip()
        return _Said() if not text or text.startswith("<") else _Said(_cut(text, MAX_MESSAGE_CHARS))


def _read_error(value: Any) -> _Said:
    """Find the message in `{"error": {...}}`, `{"error": "text"}`, `{"detail": ...}` or a flat object."""
    if isinstance(value, dict) and value.get("error"):
        value = value["error"]
    if isinstance(value, str):
        return _Said(_cut(value, MAX_MESSAGE_CHARS))
    if not isinstance(value, dict):
        return _Said()
    message = next((value[key] for key in ("message", "detail", "msg") if value.get(key)), "")
    if not isinstance(message, str):
        message = msgspec.json.encode(message).decode()
    code = value.get("code")
    status = code if isinstance(code, int) else int(code) if isinstance(code, str) and re.fullmatch(r"[45]\d\d", code) else None
    word = code if isinstance(code, str) and status is None else None
    return _Said(_cut(message, MAX_MESSAGE_CHARS), _word(value.get("type")), _word(value.get("param")), _word(word), status)


def _word(value: Any) -> str | None:
    return _cut(value, _MAX_WORD_CHARS) if isinstance(value, str) and value else None


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"
