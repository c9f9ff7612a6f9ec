"""Keeps URLs that clients name away from everything that is not the public internet (server-side request forgery).

A name is resolved once, every address that it stands for is checked, and the connection is made to one of these very addresses:
a second look-up could give another answer (DNS rebinding). Whatever notation a host comes in, what counts is the address that
the resolver makes of it. Whoever follows redirects does so with `redirected`, one hop at a time, and connects anew for each.

Addresses that only stand for another one are refused, whatever is behind them: IPv4-mapped and -compatible ones, NAT64, 6to4,
Teredo. URLs in the configuration are the operator's own and do not come here.

Source: the IANA special-purpose address registries for IPv4 and IPv6 (RFC 6890 and later).
"""

import asyncio
import socket
from collections.abc import Collection
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import NamedTuple
from urllib.parse import urljoin, urlsplit

from gateway.errors import InvalidRequest

RESOLVE_TIMEOUT_S = 5.0
CONNECT_TIMEOUT_S = 5.0
MAX_ADDRESSES = 4
MAX_URL_CHARS = 8192

_MAX_HOST_CHARS = 253
_SHOWN_CHARS = 100
_PORTS = {"http": 80, "https": 443}
_CLOSED_4 = tuple(
    IPv4Network(text)
    for text in (
        "0.0.0.0/8",
        "10.0.0.0/8",
        "100.64.0.0/10",  # also the metadata service of Alibaba Cloud
        "127.0.0.0/8",
        "168.63.129.16/32",  # Azure's, in the midst of public addresses
        "169.254.0.0/16",  # everybody else's
        "172.16.0.0/12",
        "192.0.0.0/24",
        "192.0.2.0/24",
        "192.31.196.0/24",
        "192.52.193.0/24",
        "192.88.99.0/24",
        "192.168.0.0/16",
        "192.175.48.0/24",
        "198.18.0.0/15",
        "198.51.100.0/24",
        "203.0.113.0/24",
        "224.0.0.0/4",
        "240.0.0.0/4",
    )
)
# All that is public lies in here; loopback, unspecified, unique local, link-local, multicast and NAT64 addresses do not.
_GLOBAL_6 = IPv6Network("2000::/3")
_CLOSED_6 = tuple(IPv6Network(text) for text in ("2001::/23", "2001:db8::/32", "2002::/16", "2620:4f:8000::/48", "3fff::/20"))


class UrlNotAllowed(InvalidRequest):
    """A client named a URL that the gateway does not fetch."""

    code = "url_not_allowed"


class Target(NamedTuple):
    """Where a URL leads: `host` without brackets, in lower case and without a dot at the end."""

    scheme: str
    host: str
    port: int


class Address(NamedTuple):
    """An address that was checked, as `socket.socket` and `connect` take it."""

    family: int
    sockaddr: tuple[str, int] | tuple[str, int, int, int]


def check_address(address: str) -> bool:
    """Whether an IP address is one of the public internet. What is no IP address is not."""
    try:
        parsed = ip_address(address.partition("%")[0])
    except ValueError:
        return False
    if isinstance(parsed, IPv4Address):
        return not any(parsed in network for network in _CLOSED_4)
    return _is_public_6(parsed)


def parse_url(url: str) -> Target:
    """Take a URL apart.

    Raises:
        UrlNotAllowed: it is not HTTP or HTTPS, has no host, holds credentials, is longer than 8,192 characters, or is broken.
    """
    if len(url) > MAX_URL_CHARS or not url.isprintable() or "\\" in url or " " in url:
        raise UrlNotAllowed(f"A URL must have at most {MAX_URL_CHARS} printable characters, without spaces and backslashes.")
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        raise UrlNotAllowed("The URL is broken.") from None
    if parts.scheme not in _PORTS:
        raise UrlNotAllowed("Only URLs that begin with http:// or https:// are fetched.")
    if "@" in parts.netloc:
        raise UrlNotAllowed("A URL must not hold a user name or a password.")
    name = _plain(host)
    if not name or len(name) > _MAX_HOST_CHARS:
        raise UrlNotAllowed(f"A URL must name a host of at most {_MAX_HOST_CHARS} characters.")
    return Target(parts.scheme, name, _PORTS[parts.scheme] if port is None else port)


def redirected(url: str, location: str) -> str:
    """The URL that an answer of `url` redirects to, checked like the first one.

    Raises:
        UrlNotAllowed: like `parse_url`; or it leads from HTTPS to plain HTTP.
    """
    if len(location) > MAX_URL_CHARS:
        raise UrlNotAllowed(f"The URL redirects to one of more than {MAX_URL_CHARS} characters.")
    try:
        following = urljoin(url, location)
    except ValueError:
        raise UrlNotAllowed("The URL redirects to a broken one.") from None
    if parse_url(url).scheme == "https" and parse_url(following).scheme == "http":
        raise UrlNotAllowed("The URL redirects from https:// to http://.")
    parse_url(following)
    return following


async def resolve_allowed(host: str, port: int, allow: Collection[str] = ()) -> list[Address]:
    """Resolve a host, and check every address that it stands for: one bad address refuses all.

    Args:
        allow: hosts that may lead anywhere, also into the own network. Exact names, or addresses as they are written there.

    Raises:
        UrlNotAllowed: it leads, at least in part, to what is not public; or nowhere within 5 s. The text names no address.
    """
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(RESOLVE_TIMEOUT_S):
            found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP)
    except (OSError, TimeoutError, UnicodeError, ValueError):
        raise UrlNotAllowed(f"The host '{host[:_SHOWN_CHARS]}' cannot be found.") from None
    addresses = [
        Address(family, sockaddr)  # type: ignore[arg-type]
        for family, _, _, _, sockaddr in found
        if family in (socket.AF_INET, socket.AF_INET6)
    ]
    is_free = _plain(host) in {_plain(name) for name in allow}
    if not addresses or not (is_free or all(check_address(str(address.sockaddr[0])) for address in addresses)):
        raise UrlNotAllowed(f"The host '{host[:_SHOWN_CHARS]}' does not lead to the public internet.")
    return addresses[:MAX_ADDRESSES]


async def connect_allowed(host: str, port: int, allow: Collection[str] = ()) -> socket.socket:
    """Connect to a host after `resolve_allowed`, without another look-up. The caller owns the socket, and for TLS verifies
    the certificate against `host`.

    Raises:
        UrlNotAllowed: like `resolve_allowed`; or none of the first four addresses takes a connection within 5 s.
    """
    loop = asyncio.get_running_loop()
    for address in await resolve_allowed(host, port, allow):
        connection = socket.socket(address.family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        try:
            connection.setblocking(False)
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                await loop.sock_connect(connection, address.sockaddr)
        except (OSError, TimeoutError):
            connection.close()
        except BaseException:
            connection.close()
            raise
        else:
            return connection
    raise UrlNotAllowed(f"The host '{host[:_SHOWN_CHARS]}' takes no connection.")


def _is_public_6(address: IPv6Address) -> bool:
    return address in _GLOBAL_6 and not any(address in network for network in _CLOSED_6)


def _plain(host: str) -> str:
    return host.strip("[]").rstrip(".").lower()
