"""Which errors say that a deployment is broken, as opposed to busy, or asked for something it rightly refuses."""

from backends.errors import BackendError, Failed, Unavailable


def is_fault(error: BackendError) -> bool:
    """Whether it is a 5xx, a timeout, a lost connection or a broken or empty stream."""
    return isinstance(error, Failed | Unavailable)
