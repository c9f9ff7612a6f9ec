"""The shape of errors on the paths of the Anthropic API.

Everywhere else an error is `{"error": {"message", "type", "param", "code"}}`; a client of `/v1/messages` reads
`{"type": "error", "error": {"type", "message"}, "request_id"}`, also when a middleware refused it before any route was looked
for. Statuses stay what they are, because load balancers read those. Source: Anthropic API reference, "Errors".
"""

from typing import Protocol

import msgspec

_MESSAGES_PATH = "/v1/messages"

_TYPES = {
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    408: "timeout_error",
    409: "conflict_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
    529: "overloaded_error",
}


class Told(Protocol):
    """The part of an error that a client of this API is told; `gateway.errors.ApiError` has it."""

    status: int
    message: str


def speaks_anthropic(path: str) -> bool:
    """Whether errors on this path have Anthropic's shape."""
    return path.startswith(_MESSAGES_PATH) and path[len(_MESSAGES_PATH) :][:1] in ("", "/")


def anthropic_body(error: Told, request_id: str) -> bytes:
    """Encode an error. The type follows from the status; `request_id` is null when it is empty."""
    kind = _TYPES.get(error.status, "invalid_request_error" if error.status < 500 else "api_error")
    content = {"type": kind, "message": error.message}
    return msgspec.json.encode({"type": "error", "error": content, "request_id": request_id or None})
