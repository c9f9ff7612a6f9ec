"""Answers HEAD like GET without the body (RFC 9110, 9.3.2), for every GET route at once."""

from gateway.middleware.asgi import ASGIApp, Message, Receive, Scope, Send


class Head:
    """Turns HEAD into GET on the way in, and drops the body on the way out."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one connection."""
        if scope["type"] != "http" or scope["method"] != "HEAD":
            return await self._app(scope, receive, send)

        async def send_no_body(message: Message) -> None:
            if message["type"] == "http.response.body":
                if message.get("more_body", False):
                    return
                message = {"type": "http.response.body", "body": b"", "more_body": False}
            await send(message)

        return await self._app({**scope, "method": "GET"}, receive, send_no_body)
