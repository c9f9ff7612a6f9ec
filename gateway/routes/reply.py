"""What every handler does around its verbs: read the body, find the model, answer with bytes."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from litestar import Request
from litestar.types import Receive, Scope, Send

from backends.types import Capability
from gateway.disconnect import run_until_disconnect
from gateway.errors import InvalidRequest, UnsupportedMediaType, classify
from gateway.registry import Registry
from gateway.telemetry.observation import Observation
from gateway.translate.body import Body

T = TypeVar("T")

API_VERSION = (b"openai-version", b"2020-10-01")


class JsonReply:
    """A complete JSON response, sent without the framework's serialisation."""

    def __init__(self, body: bytes) -> None:
        self._body = body

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        length = str(len(self._body)).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", length), API_VERSION]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": self._body, "more_body": False})


async def read_body(request: Request[Any, Any, Any], body: Body[T]) -> T:
    """Read and decode the body as JSON, whatever content type it claims (curl's `-d` claims a form).

    Raises:
        UnsupportedMediaType: it is compressed.
        InvalidRequest: it is not what the endpoint takes.
    """
    encoding = request.headers.get("content-encoding", "identity").lower()
    if encoding != "identity":
        raise UnsupportedMediaType(f"The content encoding '{encoding[:40]}' is not supported: send plain JSON.")
    return body.decode(await request.body())


def tenant_of(request: Request[Any, Any, Any]) -> str:
    """Whose request it is: what is computed for one tenant is not shared with another. Empty where no keys are asked for."""
    tenant: str = request.scope.get("state", {}).get("tenant", "")
    return tenant


async def model_or_only(model: str | None, registry: Registry, capability: Capability) -> str:
    """The model that was asked for, or the only one that can do it.

    Raises:
        InvalidRequest: none was named and there is a choice, or none that can.
    """
    name = model if model is not None else await registry.only(capability)
    if name is None:
        text = "Missing required parameter: 'model' (it may only be left out when exactly one fitting model is served)."
        raise InvalidRequest(text, param="model", code="missing_required_parameter")
    return name


async def observed(
    request: Request[Any, Any, Any],
    begin: Callable[[], Observation],
    work: Callable[[Observation], Awaitable[T]],
    *,
    prompt_param: str,
) -> T:
    """Run the work of a request that is answered at once: it ends when the client leaves, and its end is recorded.

    `work` ends the observation itself when it succeeds.

    Raises:
        ApiError: whatever went wrong.
    """

    async def run() -> T:
        observation = begin()
        try:
            return await work(observation)
        except asyncio.CancelledError:
            observation.cancelled()
            raise
        except Exception as error:
            request_id = request.scope.get("state", {}).get("request_id", "")
            api_error = classify(error, request_id=request_id, prompt_param=prompt_param)
            observation.fail(api_error.code, api_error.status)
            raise api_error from error

    return await run_until_disconnect(request.receive, run())
