"""POST /v1/completions (legacy)."""

import msgspec

from gateway.dispatch.answer import Answer, StreamedAnswer, WholeAnswer
from gateway.routes.asked import Asked
from gateway.routes.collect import collect
from gateway.routes.door import Endpoint
from gateway.routes.fan_out import generate_all
from gateway.routing.deployment import Deployment
from gateway.schema.completions import CompletionRequest
from gateway.schema.parameters import COMPLETIONS
from gateway.translate.body import Body
from gateway.translate.completion_chunks import CompletionChunks
from gateway.translate.completions import to_requests, to_response
from gateway.translate.ending import OpenAiEnding
from gateway.translate.generation import wants_usage
from gateway.translate.stamp import new_stamp

_BODY = Body(CompletionRequest, COMPLETIONS)


class _CompletionHere:
    """One or more raw prompts that are continued here, at once or as a stream of events."""

    def __init__(self, asked: Asked) -> None:
        call = asked.call
        self._body = _BODY.decode(asked.body)
        self._call = call
        self._stamp = new_stamp("cmpl", call.model)
        tenant = call.identity.tenant
        self._requests = to_requests(self._body, request_id=self._stamp.id, model=call.model, tenant=tenant)

    async def open(self, deployment: Deployment) -> Answer:
        """Start to answer."""
        requests = [msgspec.structs.replace(request, model=deployment.name) for request in self._requests]
        size = len(requests) * requests[0].n
        deltas = generate_all(deployment.backend.generate, requests)
        logprobs = self._body.logprobs
        if self._body.stream:
            chunks = CompletionChunks(self._stamp, size, include_usage=wants_usage(self._body), logprobs=logprobs)
            return await StreamedAnswer(deltas, chunks).begin()
        answer = await collect(deltas, size, self._call.on_tokens)
        return WholeAnswer(to_response(answer, self._stamp, logprobs=logprobs), answer.usage, answer.finish_of(0))


LEGACY_COMPLETIONS = Endpoint("completions", "/v1/completions", "completion", "prompt", OpenAiEnding(), _CompletionHere)
