"""Whether a request comes from a person at this very machine, and not from a web page or through a proxy.

Asked before an operator's action is allowed without a key. A loopback address alone proves little: a page of any web site can
have the browser on this machine send a request here, by its own name (cross-site) or by a name of its own that it lets point
here (DNS rebinding); and behind a reverse proxy everybody comes from a loopback address.
"""

import ipaddress

from gateway.middleware.asgi import Scope
from gateway.middleware.reply import header

_PROXIED = (b"forwarded", b"x-forwarded-for", b"x-real-ip", b"via")


def is_local_client(scope: Scope) -> bool:
    """Say whether the connection and the name it asks for are of this machine, with no other page's origin and no proxy."""
    client = scope.get("client")
    host = header(scope, b"host") or ""
    origin = header(scope, b"origin")
    return (
        client is not None
        and _is_loopback(client[0])
        and _is_loopback(_name(host))
        and (origin is None or origin.partition("://")[2].lower() == host.lower())
        and all(header(scope, name) is None for name in _PROXIED)
    )


def _name(host: str) -> str:
    """The host without its port: `[::1]:8000` becomes `::1`."""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]


def _is_loopback(host: str) -> bool:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host.lower() == "localhost"
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_loopback
