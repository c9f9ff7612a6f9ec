"""Everything a backend may raise, as one tree.

    BackendError
    ├── Rejected            the request itself is at fault: repeating it cannot help
    │   ├── ContextOverflow     prompt (and answer) do not fit the context
    │   └── Unsupported         a legal parameter that this model or backend cannot honour
    ├── ModelNotFound       nobody here serves that model
    ├── Overloaded          healthy but full: come back later
    ├── Unavailable         not able to serve now: loading, restarting, given up
    └── Failed              broke while it served this request
        └── TimedOut            took longer than it may

The tree says what happened; which HTTP status that becomes is the gateway's business. Errors cross process borders as
`ErrorInfo`, so a worker can raise what its client then catches.
"""

from msgspec import Struct


class BackendError(Exception):
    """Base of the tree. `message` is written for the person who sent the request.

    Args:
        message: one sentence that names the limit and the number that broke it; never longer than a few hundred characters.
        param: JSON path of the offending request field (`messages[0].content`), if there is one.
        code: a stable word for programs (`context_length_exceeded`); each class has a default.
        retry_after_s: seconds after which the same request may succeed, if that is known.
    """

    code: str | None = None
    retryable: bool = False

    def __init__(
        self, message: str, *, param: str | None = None, code: str | None = None, retry_after_s: float | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.code = code or type(self).code
        self.retry_after_s = retry_after_s


class Rejected(BackendError):
    """The request is at fault."""

    code = "invalid_value"


class ContextOverflow(Rejected):
    """The prompt does not fit the model's context, or leaves no room for an answer."""

    code = "context_length_exceeded"


class Unsupported(Rejected):
    """A parameter that this model or backend cannot honour."""

    code = "unsupported_parameter"


class ModelNotFound(BackendError):
    """No backend serves the model."""

    code = "model_not_found"


class Overloaded(BackendError):
    """The queue is full or the backend drains."""

    code = "engine_overloaded"
    retryable = True


class Unavailable(BackendError):
    """The backend cannot serve now."""

    code = "model_unavailable"
    retryable = True


class Failed(BackendError):
    """The backend broke while it served this request."""

    code = "engine_failed"
    retryable = True


class TimedOut(Failed):
    """The backend took longer than it may."""

    code = "timeout"


class ErrorInfo(Struct, frozen=True, array_like=True):
    """A `BackendError` as a message between processes."""

    kind: str
    message: str
    param: str | None = None
    code: str | None = None
    retry_after_s: float | None = None


_KINDS: dict[str, type[BackendError]] = {
    cls.__name__: cls
    for cls in (Rejected, ContextOverflow, Unsupported, ModelNotFound, Overloaded, Unavailable, Failed, TimedOut)
}


def pack_error(error: BackendError) -> ErrorInfo:
    """Turn an error into a message that `unpack_error` turns back into the same class."""
    return ErrorInfo(type(error).__name__, error.message, error.param, error.code, error.retry_after_s)


def unpack_error(info: ErrorInfo) -> BackendError:
    """Rebuild the error; a kind that this version does not know becomes `Failed`."""
    cls = _KINDS.get(info.kind, Failed)
    return cls(info.message, param=info.param, code=info.code, retry_after_s=info.retry_after_s)
