"""What can go wrong with what was remembered, as answers to the client.

    ApiError
    ├── InvalidRequest
    │   ├── InvalidId               400  an id with characters that no id has
    │   └── TooLarge                400  more items or bytes than one conversation or response may hold
    ├── Conflict                409  somebody else changed the conversation first
    └── ContextUnavailable      503  the store does not answer, or what it returned is damaged

Both official SDKs repeat a 409 by themselves, which cannot help here; a header tells them so.
"""

from gateway.errors import ApiError, InvalidRequest


class InvalidId(InvalidRequest):
    """The id is not 1 to 64 letters, digits, hyphens or underscores."""


class TooLarge(InvalidRequest):
    """The conversation or response would exceed a limit; nothing was written."""

    code = "context_too_large"


class Conflict(ApiError):
    """The conversation does not have the version that the caller has seen; nothing was written.

    Args:
        expected: the version that the caller expected.
        current: the version that it has; 0 when it does not exist.
    """

    status = 409
    type = "invalid_request_error"
    code = "context_conflict"

    def __init__(self, expected: int, current: int) -> None:
        text = f"The conversation was changed by another request: version {expected} was expected, it has version {current}."
        super().__init__(text, headers={"x-should-retry": "false"})
        self.expected = expected
        self.current = current


class ContextUnavailable(ApiError):
    """What the request refers to cannot be read or written now."""

    status = 503
    code = "context_unavailable"

    def __init__(self, message: str) -> None:
        super().__init__(message, headers={"retry-after": "1"})
