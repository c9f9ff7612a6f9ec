"""What a client is told when something goes wrong, as one tree and one table.

    ApiError
    ├── InvalidRequest          400  the body or a parameter is at fault
    ├── UnknownModel            404  nobody here serves that model
    ├── UnknownUrl              404  there is no such path
    ├── MethodNotSupported      405  the path exists, the method does not (with `Allow`)
    ├── BodyTooLarge            413  more bytes than the configured limit
    ├── UnsupportedMediaType    415  a compressed body
    ├── ClientGone              499  nobody is left to be told
    ├── InternalError           500  a fault of ours: fixed text, no stack
    ├── UpstreamFailed          502  the backend broke while it served this request
    ├── NotReady                503  full, draining, loading or restarting (with `retry-after`)
    └── UpstreamTimedOut        504  the backend took longer than it may

Every body is `{"error": {"message", "type", "param", "code"}}`, which is the only shape both official SDKs read; below
`/v1/messages` it is what Anthropic's SDKs read (`gateway.anthropic_errors`). It stays below 4 kB whatever the client sent.
Source: the OpenAI API reference ("error codes"); SDK behaviour was observed.
"""

import logging
import math
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from litestar import Request, Response
from litestar.exceptions import HTTPException

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
from gateway.anthropic_errors import anthropic_body, speaks_anthropic

logger = logging.getLogger("gateway.errors")

MAX_MESSAGE_CHARS = 600
MAX_PARAM_CHARS = 128
DEFAULT_RETRY_AFTER_S = 1.0


class ApiError(Exception):
    """Base of the tree.

    Args:
        message: for the person who wrote the client; cut to 600 characters.
        param: JSON path of the field at fault, such as `messages[0].role`.
        code: a stable word for programs; each class has a default.
        headers: sent with the error.
    """

    status = 500
    type = "server_error"
    code: str | None = None

    def __init__(
        self, message: str, *, param: str | None = None, code: str | None = None, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.message = _cut(message, MAX_MESSAGE_CHARS)
        self.param = param
        self.code = code or type(self).code
        self.headers = dict(headers or {})


class InvalidRequest(ApiError):
    """The body or a parameter is at fault."""

    status = 400
    type = "invalid_request_error"


class UnknownModel(InvalidRequest):
    """Nobody here serves that model."""

    status = 404
    code = "model_not_found"


class UnknownUrl(InvalidRequest):
    """There is no such path."""

    status = 404
    code = "unknown_url"


class MethodNotSupported(InvalidRequest):
    """The path exists, the method does not."""

    status = 405
    code = "method_not_supported"


class BodyTooLarge(InvalidRequest):
    """More bytes than the configured limit."""

    status = 413
    code = "request_too_large"


class UnsupportedMediaType(InvalidRequest):
    """A body in an encoding that is not read here."""

    status = 415
    code = "unsupported_media_type"


class ClientGone(InvalidRequest):
    """The client left; 499 is what nginx logs for that, and nobody receives it."""

    status = 499
    code = "client_closed_request"


class InternalError(ApiError):
    """A fault of ours."""

    code = "internal_error"


class UpstreamFailed(ApiError):
    """The backend broke while it served this request."""

    status = 502
    type = "upstream_error"


class NotReady(ApiError):
    """Full, draining, loading or restarting."""

    status = 503


class UpstreamTimedOut(UpstreamFailed):
    """The backend took longer than it may."""

    status = 504


# Most special class first: the first row that the error is an instance of decides.
_BACKEND_ERRORS: tuple[tuple[type[BackendError], type[ApiError]], ...] = (
    (Rejected, InvalidRequest),
    (ModelNotFound, UnknownModel),
    (Overloaded, NotReady),
    (Unavailable, NotReady),
    (TimedOut, UpstreamTimedOut),
    (Failed, UpstreamFailed),
)

_HTTP_ERRORS: dict[int, tuple[type[ApiError], str | None]] = {
    404: (UnknownUrl, None),
    405: (MethodNotSupported, None),
    413: (BodyTooLarge, None),
    415: (UnsupportedMediaType, None),
}


def from_backend(error: BackendError, *, prompt_param: str | None = "messages") -> ApiError:
    """Say what a backend's error means over HTTP. `prompt_param` names the field of an overflowing prompt."""
    cls = next((api for backend, api in _BACKEND_ERRORS if isinstance(error, backend)), UpstreamFailed)
    param = error.param
    if param is None and isinstance(error, ContextOverflow):
        param = prompt_param
    if isinstance(error, ModelNotFound):
        param = "model"
    headers = {}
    if cls is NotReady:
        wait_s = DEFAULT_RETRY_AFTER_S if error.retry_after_s is None else error.retry_after_s
        headers["retry-after"] = str(max(1, math.ceil(wait_s)))
    return cls(error.message, param=param, code=error.code, headers=headers)


def from_http(error: HTTPException, request: Request[Any, Any, Any]) -> ApiError:
    """Say in our shape what litestar found wrong before or around a handler."""
    method, path = request.scope["method"], request.scope["path"]
    headers = {k: v for k, v in (error.headers or {}).items() if k.lower() in ("allow", "retry-after", "www-authenticate")}
    messages = {
        404: f"Unknown request URL: {method} {_cut(path, 200)}. The API lives under /v1.",
        405: f"Method {_cut(method, 20)} is not allowed for {_cut(path, 200)}.",
        413: f"The request body is too large: {error.detail}",
    }
    message = messages.get(error.status_code, error.detail)
    if error.status_code >= 500:
        return internal(error, request)
    cls, code = _HTTP_ERRORS.get(error.status_code, (InvalidRequest, None))
    api_error = cls(message, code=code, headers=headers)
    api_error.status = error.status_code
    return api_error


def internal(error: BaseException, request: Request[Any, Any, Any] | None = None, request_id: str = "") -> ApiError:
    """Log a fault of ours with its stack, and answer with a fixed text that carries only the request id."""
    if request is not None:
        request_id = request.scope.get("state", {}).get("request_id", "")
    logger.error("unexpected %s", type(error).__name__, exc_info=error, extra={"request_id": request_id})
    suffix = f" Please quote the request id {request_id}." if request_id else ""
    return InternalError(f"The server had an error while processing your request.{suffix}")


def classify(error: Exception, *, request_id: str = "", prompt_param: str | None = "messages") -> ApiError:
    """Turn whatever broke a handler or a stream into what the client is told."""
    if isinstance(error, ApiError):
        return error
    if isinstance(error, BackendError):
        return from_backend(error, prompt_param=prompt_param)
    return internal(error, request_id=request_id)


def error_body(error: ApiError, scope: Mapping[str, Any] | None = None) -> bytes:
    """Encode the body, in the shape of the API that the path of the request belongs to (OpenAI's where there is no request).

    Long texts are cut, so that an error never echoes what it complains about.
    """
    if scope is not None and speaks_anthropic(scope["path"]):
        return anthropic_body(error, scope.get("state", {}).get("request_id", ""))
    content = {
        "message": error.message,
        "type": error.type,
        "param": None if error.param is None else _cut(error.param, MAX_PARAM_CHARS),
        "code": None if error.code is None else _cut(error.code, MAX_PARAM_CHARS),
    }
    return msgspec.json.encode({"error": content})


def _cut(text: str, limit: int) -> str:
    # A header or a path may hold half of a surrogate pair, which has no UTF-8 form.
    text = text.encode("utf-8", "replace").decode()
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _respond(error: ApiError, request: Request[Any, Any, Any]) -> Response[bytes]:
    headers = {"openai-version": "2020-10-01", **error.headers}
    body = error_body(error, request.scope)
    return Response(body, status_code=error.status, headers=headers, media_type="application/json")


def _on_api_error(request: Request[Any, Any, Any], error: ApiError) -> Response[bytes]:
    return _respond(error, request)


def _on_backend_error(request: Request[Any, Any, Any], error: BackendError) -> Response[bytes]:
    path = request.scope["path"]
    is_chat = path.endswith(("/chat/completions", "/messages"))
    param = "messages" if is_chat else "input" if path.endswith("/embeddings") else "prompt"
    return _respond(from_backend(error, prompt_param=param), request)


def _on_http_error(request: Request[Any, Any, Any], error: HTTPException) -> Response[bytes]:
    return _respond(from_http(error, request), request)


def _on_bad_json(request: Request[Any, Any, Any], error: Exception) -> Response[bytes]:
    return _respond(InvalidRequest(f"The request could not be read: {error}"), request)


def _on_deep_json(request: Request[Any, Any, Any], error: RecursionError) -> Response[bytes]:
    return _respond(InvalidRequest("The request is nested too deeply."), request)


def _on_anything(request: Request[Any, Any, Any], error: Exception) -> Response[bytes]:
    return _respond(internal(error, request), request)


EXCEPTION_HANDLERS: dict[type[Exception] | int, Callable[[Request[Any, Any, Any], Any], Response[bytes]]] = {
    ApiError: _on_api_error,
    BackendError: _on_backend_error,
    HTTPException: _on_http_error,
    msgspec.MsgspecError: _on_bad_json,
    RecursionError: _on_deep_json,
    Exception: _on_anything,
}
"""For `Litestar(exception_handlers=...)`: no error leaves in another shape, also those raised before routing."""
