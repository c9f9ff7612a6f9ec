"""Says in words which bound a conversation or a response would break."""

from gateway.context.errors import TooLarge
from gateway.context.logs import Bounds


def check_bounds(items: int, size: int, bounds: Bounds, *, what: str) -> None:
    """Let pass what fits.

    Args:
        items: the number of items that it would have.
        size: the bytes that it would have.
        what: its name in the message (`The conversation`).

    Raises:
        TooLarge: it has too many items or bytes.
    """
    if items > bounds.items:
        raise TooLarge(f"{what} would have {items} items, the limit is {bounds.items}.")
    if size > bounds.size:
        raise TooLarge(f"{what} would have {size} bytes, the limit is {bounds.size}.")
