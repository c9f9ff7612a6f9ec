"""One log line and one metric per request, when its response has ended.

The line holds no query string, no header but the user agent, and nothing of the bodies but their size.
"""

import logging
from time import perf_counter

from gateway.middleware.asgi import ASGIApp, Message, Receive, Scope, Send
from gateway.middleware.reply import header
from gateway.telemetry.observation import CLIENT_CLOSED_STATUS
from gateway.telemetry.telemetry import Telemetry

_QUIET_PREFIXES = ("/health", "/metrics")
_MAX_TEXT_CHARS = 256

logger = logging.getLogger("gateway.access")


class AccessLog:
    """Logs at INFO; health checks and scrapes, which come every few seconds, at DEBUG."""

    def __init__(self, app: ASGIApp, telemetry: Telemetry) -> None:
        self._app = app
        self._telemetry = telemetry

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one connection."""
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        begun = perf_counter()
        status, sent_bytes, complete = CLIENT_CLOSED_STATUS, 0, False

        async def counting_send(message: Message) -> None:
            nonlocal status, sent_bytes, complete
            await send(message)
            if message["type"] == "http.response.start":
                status = message["status"]
            elif message["type"] == "http.response.body":
                sent_bytes += len(message["body"])
                complete = not message.get("more_body", False)

        try:
            await self._app(scope, receive, counting_send)
        except Exception:
            status = 500
            raise
        finally:
            self._telemetry.response(scope["method"], status)
            level = logging.DEBUG if scope["path"].startswith(_QUIET_PREFIXES) else logging.INFO
            if logger.isEnabledFor(level):
                fields = _describe(scope, status, sent_bytes, complete, perf_counter() - begun)
                logger.log(
                    level, "%s %s %d", scope["method"], scope["path"][:_MAX_TEXT_CHARS], status, extra={"fields": fields}
                )


def _describe(scope: Scope, status: int, sent_bytes: int, complete: bool, duration_s: float) -> dict[str, object]:
    client = scope.get("client")
    return {
        "event.duration": int(duration_s * 1e9),
        "event.outcome": "success" if status < 400 and complete else "failure",
        "http.request.method": scope["method"],
        "url.path": scope["path"][:_MAX_TEXT_CHARS],
        "http.response.status_code": status,
        "http.response.body.bytes": sent_bytes,
        "client.ip": client[0] if client else None,
        "user_agent.original": (header(scope, b"user-agent") or "")[:_MAX_TEXT_CHARS],
    }
