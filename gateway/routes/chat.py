"""POST /v1/chat/completions."""

import msgspec

from gateway.dispatch.answer import Answer, StreamedAnswer, WholeAnswer
from gateway.routes.asked import Asked
from gateway.routes.collect import collect
from gateway.routes.door import Endpoint
from gateway.routing.deployment import Deployment
from gateway.schema.chat import ChatRequest
from gateway.schema.parameters import CHAT
from gateway.translate.body import HINTS, Body
from gateway.translate.chat import to_request, to_response
from gateway.translate.chat_chunks import ChatChunks
from gateway.translate.ending import OpenAiEnding
from gateway.translate.generation import wants_usage
from gateway.translate.stamp import new_stamp

_HINTS = HINTS | {"role": "system, developer, user, assistant or tool"}
_BODY = Body(ChatRequest, CHAT, _HINTS)


class _ChatHere:
    """A conversation that is answered here, at once or as a stream of events."""

    def __init__(self, asked: Asked) -> None:
        call = asked.call
        self._body = _BODY.decode(asked.body)
        self._call = call
        self._stamp = new_stamp("chatcmpl", call.model)
        tenant = call.identity.tenant
        self._request = to_request(self._body, request_id=self._stamp.id, model=call.model, tenant=tenant)

    async def open(self, deployment: Deployment) -> Answer:
        """Start to answer."""
        request = msgspec.structs.replace(self._request, model=deployment.name)
        deltas = deployment.backend.generate(request)
        if self._body.stream:
            chunks = ChatChunks(self._stamp, request.n, include_usage=wants_usage(self._body))
            return await StreamedAnswer(deltas, chunks).begin()
        answer = await collect(deltas, request.n, self._call.on_tokens)
        body = to_response(answer, self._stamp, logprobs=request.logprobs is not None)
        return WholeAnswer(body, answer.usage, answer.finish_of(0))


CHAT_COMPLETIONS = Endpoint("chat", "/v1/chat/completions", "chat", "messages", OpenAiEnding(), _ChatHere)
