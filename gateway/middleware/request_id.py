"""Gives every request an id, and every response the id and the time it took.

Outermost, so that even an error raised before routing carries the id. A bug that nothing else caught ends here as a 500 with a
fixed text: the stack goes to the log, never to the client.
"""

import logging
import re
from secrets import token_hex
from time import perf_counter

from gateway.anthropic_errors import speaks_anthropic
from gateway.errors import InternalError
from gateway.middleware.asgi import ASGIApp, Message, Receive, Scope, Send
from gateway.middleware.reply import header, send_error
from gateway.telemetry.logs import current_request_id

_SANE = re.compile(r"[A-Za-z0-9._-]{1,128}")

logger = logging.getLogger(__name__)


class RequestId:
    """Sets `scope["state"]["request_id"]`, `x-request-id` and `openai-processing-ms` (whole milliseconds to the first byte)."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one connection."""
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        begun = perf_counter()
        request_id = _choose(header(scope, b"x-request-id"))
        scope.setdefault("state", {})["request_id"] = request_id
        token = current_request_id.set(request_id)
        started = False
        # The name under which Anthropic's SDKs look for it.
        anthropic_id = [(b"request-id", request_id.encode())] if speaks_anthropic(scope["path"]) else []

        async def send_with_id(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                elapsed_ms = str(int((perf_counter() - begun) * 1000))
                message["headers"] = [
                    *message["headers"],
                    (b"x-request-id", request_id.encode()),
                    (b"openai-processing-ms", elapsed_ms.encode()),
                    *anthropic_id,
                ]
            await send(message)

        try:
            await self._app(scope, receive, send_with_id)
        except Exception:
            logger.exception("a request failed because of a bug")
            if started:
                raise
            text = f"The server had an internal error. Quote the request id {request_id} when you report it."
            await send_error(scope, send_with_id, InternalError(text))
        finally:
            current_request_id.reset(token)


def _choose(inbound: str | None) -> str:
    if inbound is not None and _SANE.fullmatch(inbound):
        return inbound
    return f"req_{token_hex(16)}"
