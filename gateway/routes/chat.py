"""POST /v1/chat/completions."""

from typing import Any

from litestar import Request, post
from litestar.types import ASGIApp

from gateway.routes.collect import collect
from gateway.routes.dependencies import RegistryDependency, SettingsDependency, TelemetryDependency
from gateway.routes.reply import JsonReply, model_or_only, observed, read_body, tenant_of
from gateway.schema.chat import ChatRequest
from gateway.schema.parameters import CHAT
from gateway.sse import EventStream
from gateway.telemetry.observation import Observation
from gateway.translate.body import Body
from gateway.translate.chat import to_request, to_response
from gateway.translate.chat_chunks import ChatChunks
from gateway.translate.generation import wants_usage
from gateway.translate.stamp import new_stamp

_BODY = Body(ChatRequest, CHAT)


@post("/v1/chat/completions", status_code=200)
async def create_chat_completion(
    request: Request[Any, Any, Any],
    registry: RegistryDependency,
    telemetry: TelemetryDependency,
    settings: SettingsDependency,
) -> ASGIApp:
    """Answer a conversation, at once or as a stream of events."""
    body = await read_body(request, _BODY)
    model = await model_or_only(body.model, registry, "chat")
    stamp = new_stamp("chatcmpl", model)
    asked = to_request(body, request_id=stamp.id, model=model, tenant=tenant_of(request))
    backend = registry.resolve(model)

    def begin() -> Observation:
        return telemetry.begin("chat", model, bool(body.stream))

    if body.stream:
        chunks = ChatChunks(stamp, asked.n, include_usage=wants_usage(body))
        interval_s = settings.ping_interval_s
        return EventStream(backend.generate(asked), chunks, begin, ping_interval_s=interval_s, prompt_param="messages")

    async def work(observation: Observation) -> bytes:
        answer = await collect(backend.generate(asked), asked.n, observation)
        return to_response(answer, stamp, logprobs=asked.logprobs is not None)

    return JsonReply(await observed(request, begin, work, prompt_param="messages"))
