"""POST /v1/completions (legacy)."""

from typing import Any

from litestar import Request, post
from litestar.types import ASGIApp

from gateway.routes.collect import collect
from gateway.routes.dependencies import RegistryDependency, SettingsDependency, TelemetryDependency
from gateway.routes.fan_out import generate_all
from gateway.routes.reply import JsonReply, model_or_only, observed, read_body, tenant_of
from gateway.schema.completions import CompletionRequest
from gateway.schema.parameters import COMPLETIONS
from gateway.sse import EventStream
from gateway.telemetry.observation import Observation
from gateway.translate.body import Body
from gateway.translate.completion_chunks import CompletionChunks
from gateway.translate.completions import to_requests, to_response
from gateway.translate.generation import wants_usage
from gateway.translate.stamp import new_stamp

_BODY = Body(CompletionRequest, COMPLETIONS)


@post("/v1/completions", status_code=200)
async def create_completion(
    request: Request[Any, Any, Any],
    registry: RegistryDependency,
    telemetry: TelemetryDependency,
    settings: SettingsDependency,
) -> ASGIApp:
    """Continue one or more raw prompts, at once or as a stream of events."""
    body = await read_body(request, _BODY)
    model = await model_or_only(body.model, registry, "completion")
    stamp = new_stamp("cmpl", model)
    asked = to_requests(body, request_id=stamp.id, model=model, tenant=tenant_of(request))
    backend = registry.resolve(model)
    size = len(asked) * asked[0].n

    def begin() -> Observation:
        return telemetry.begin("completions", model, bool(body.stream))

    if body.stream:
        chunks = CompletionChunks(stamp, size, include_usage=wants_usage(body), logprobs=body.logprobs)
        source = generate_all(backend.generate, asked)
        return EventStream(source, chunks, begin, ping_interval_s=settings.ping_interval_s, prompt_param="prompt")

    async def work(observation: Observation) -> bytes:
        answer = await collect(generate_all(backend.generate, asked), size, observation)
        return to_response(answer, stamp, logprobs=body.logprobs)

    return JsonReply(await observed(request, begin, work, prompt_param="prompt"))
