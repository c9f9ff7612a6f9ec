"""HTTP/1.1 for a client that forwards: `httpx.AsyncBaseTransport` with little between the socket and the caller.

httpx's own transport parses in Python and looks through its whole pool for every request, so that a gateway spends most of its
time there. This one is an asyncio protocol over llhttp. Deliberately left out: HTTP/2, proxies, trailers, upgrades, and what
httpx does above a transport (decompression, redirects). Source: RFC 9110 and 9112; httpx's transport API.
"""

import ssl
from functools import partial

import httpx

from backends.remote.transport.connection import Connection, Origin
from backends.remote.transport.dial import dial
from backends.remote.transport.limits import ConnectionCounts, Limits
from backends.remote.transport.parser import ResponseParser
from backends.remote.transport.pool import Pool, Timeouts
from backends.remote.transport.request import encode


class HttpTransport(httpx.AsyncBaseTransport):
    """A pool of connections on one event loop.

    Args:
        limits: how many connections there may be, and how many requests may wait for one.
        ssl_context: for https; by default certificates are verified against the system's authorities. Its ALPN protocols are
            set to `http/1.1`.
        max_head_bytes: of a response's status line and headers together, interim responses and trailers included; also of
            what a server may send between two pieces of a body without being cut off.
        max_headers: of a response, and the same number of trailers.
        connect_timeout_s: for requests that bring no timeouts.
        keep_alive_s: how long an idle connection is kept. Less than the server's own is best; if the server is first, a
            request that meets its closing is repeated.
    """

    def __init__(
        self,
        *,
        limits: Limits = Limits(),  # noqa: B008 (frozen)
        ssl_context: ssl.SSLContext | None = None,
        max_head_bytes: int = 64 * 1024,
        max_headers: int = 128,
        connect_timeout_s: float = 5.0,
        keep_alive_s: float = 30.0,
    ) -> None:
        self._ssl_context = ssl.create_default_context() if ssl_context is None else ssl_context
        self._ssl_context.set_alpn_protocols(["http/1.1"])
        self._make_parser = partial(ResponseParser, max_head_bytes=max_head_bytes, max_headers=max_headers)
        self._timeouts: Timeouts = {"connect": connect_timeout_s}
        self._pool = Pool(limits, keep_alive_s, self._open_connection)

    @property
    def counts(self) -> ConnectionCounts:
        """What it holds now."""
        return self._pool.counts()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request and return the response once its head is complete; the body is still to be read or closed.

        `request.extensions["timeout"]` holds seconds, or None for no limit, as httpx defines them: `connect` (name, TCP and
        TLS together), `write` (each wait for the server to take more), `pool` (the wait for a connection) and `read`: from
        the end of the request to the complete response head, then each wait for body bytes. `read` is looked up at each wait,
        so it can be changed in place while a body arrives. `response.stream` is a `ResponseStream`, whose `read_chunk` is the
        shortest way to the body. Cancelling closes the connection.

        A request is sent a second time, once, if a connection that had served others died before any byte of an answer
        and the body is known. That is how a server's closing of an idle connection looks; in theory it may also have been
        processed.

        Raises:
            httpx.UnsupportedProtocol: neither http nor https.
            httpx.LocalProtocolError: the request cannot be sent as it is.
            httpx.PoolTimeout, httpx.ConnectTimeout, httpx.ConnectError: there is no connection.
            httpx.WriteTimeout, httpx.WriteError: the request could not be sent.
            httpx.ReadTimeout, httpx.ReadError: the response did not come.
            httpx.RemoteProtocolError: what came is no HTTP/1.1, exceeds a bound, or ends too early.
        """
        url = request.url
        scheme = url.scheme
        if scheme not in ("http", "https") or not url.raw_host:
            raise httpx.UnsupportedProtocol(f"cannot send a request to {scheme or 'no scheme'}://{url.host or 'no host'}")
        message = encode(request)
        timeouts: Timeouts = request.extensions.get("timeout", self._timeouts)
        origin = (scheme, url.raw_host, url.port)
        connection = self._pool.take(origin) or await self._pool.acquire(origin, timeouts)
        try:
            return await connection.exchange(message, timeouts)
        except (httpx.ReadError, httpx.WriteError, httpx.RemoteProtocolError):
            if not connection.may_repeat:
                raise
        connection = await self._pool.acquire(origin, timeouts)
        return await connection.exchange(message, timeouts)

    async def aclose(self) -> None:
        """Close all connections; responses that are being read fail with `httpx.ReadError`."""
        await self._pool.aclose()

    async def _open_connection(self, origin: Origin, timeouts: Timeouts) -> Connection:
        def make() -> Connection:
            return Connection(origin, self._make_parser())

        return await dial(origin, make, self._ssl_context, timeouts.get("connect"))
