"""Runs a line through an ASGI application, as if a client had sent it, without a socket."""

import asyncio
from typing import Any

from litestar.types import ASGIApp

from gateway.disconnect import CONNECTION_END, ConnectionEnd
from gateway.identity import Identity

_HEADERS = ((b"content-type", b"application/json"), (b"x-baton-priority", b"batch"))


class AsgiLine:
    """Posts bodies to the paths of an application that stands behind authentication: who asks is put into the scope.

    What is called may be cancelled, which cancels the request.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app: Any = app

    async def __call__(self, identity: Identity, endpoint: str, body: bytes, request_id: str) -> tuple[int, bytes]:
        """Answer one request: its status and its body. Raises what the application lets out."""
        exchange = _Exchange(body)
        scope: dict[str, Any] = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": "POST",
            "scheme": "http",
            "path": endpoint,
            "raw_path": endpoint.encode(),
            "query_string": b"",
            "root_path": "",
            "headers": [*_HEADERS, (b"content-length", str(len(body)).encode()), (b"x-request-id", request_id.encode())],
            "client": None,
            "server": None,
            "state": {"identity": identity, "tenant": identity.tenant, "request_id": request_id},
            # Nobody can leave, so nobody has to watch.
            CONNECTION_END: ConnectionEnd(),
        }
        await self._app(scope, exchange.receive, exchange.send)
        return exchange.status, b"".join(exchange.pieces)


class _Exchange:
    """The two ends of one request."""

    def __init__(self, body: bytes) -> None:
        self.status = 500
        self.pieces: list[bytes] = []
        self._body: bytes | None = body

    async def receive(self) -> dict[str, Any]:
        """The body once; then nothing, for as long as anybody waits."""
        if self._body is None:
            await asyncio.get_running_loop().create_future()
        body, self._body = self._body, None
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(self, message: dict[str, Any]) -> None:
        """Gather what comes."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
        elif message["type"] == "http.response.body":
            self.pieces.append(message.get("body", b""))
