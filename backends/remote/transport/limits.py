"""How much a transport may hold open, and how much it holds."""

from msgspec import Struct


class Limits(Struct, frozen=True, kw_only=True):
    """Bounds of one transport. Connections count from the start of connecting to the close.

    Attributes:
        max_connections: to all origins together, at least 1.
        max_connections_per_origin: to one scheme, host and port, at least 1.
        max_idle: kept for reuse, over all origins; 0 opens a connection for every request.
        max_waiting: requests that wait for a connection, over all origins; more are refused at once.
    """

    max_connections: int = 1000
    max_connections_per_origin: int = 500
    max_idle: int = 256
    max_waiting: int = 10_000


class ConnectionCounts(Struct, frozen=True):
    """What a transport holds now. `open` includes the idle ones and those that are being opened."""

    open: int
    idle: int
    waiting: int
