"""POST /v1/messages and POST /v1/messages/count_tokens: the Anthropic Messages API, over every backend.

A body is translated for every backend: an upstream that speaks OpenAI's API would not understand it as it is.
"""

from contextlib import aclosing
from typing import Any
from uuid import uuid4

import msgspec
from litestar import Request, post
from litestar.types import ASGIApp

from gateway.disconnect import until_gone
from gateway.dispatch.answer import Answer, StreamedAnswer, WholeAnswer
from gateway.response import JsonReply
from gateway.routes.asked import Asked
from gateway.routes.dependencies import CatalogDependency
from gateway.routes.door import Endpoint
from gateway.routes.reply import identity_of, read_body, settle_model
from gateway.routing.deployment import Deployment
from gateway.schema.messages_api import CountTokensRequest, MessagesRequest
from gateway.schema.messages_api_parameters import COUNT_TOKENS, MESSAGES
from gateway.translate.body import Body
from gateway.translate.messages_api import to_request, to_token_count, to_tokenize_request
from gateway.translate.messages_api_answer import Gathered
from gateway.translate.messages_api_events import MessageEvents, MessagesEnding

_BODY = Body(MessagesRequest, MESSAGES)
_COUNT_BODY = Body(CountTokensRequest, COUNT_TOKENS)


class _MessageHere:
    """A conversation that is answered here, at once or as a stream of events."""

    def __init__(self, asked: Asked) -> None:
        self._call = asked.call
        self._body = _BODY.decode(asked.body)
        self._id = f"msg_{uuid4().hex}"
        model, tenant = self._call.model, self._call.identity.tenant
        self._request = to_request(self._body, request_id=self._id, model=model, tenant=tenant)

    async def open(self, deployment: Deployment) -> Answer:
        """Start to answer."""
        deltas = deployment.backend.generate(msgspec.structs.replace(self._request, model=deployment.name))
        if self._body.stream:
            return await StreamedAnswer(deltas, MessageEvents(self._id, self._call.model)).begin()
        gathered, tokens = Gathered(), 0
        async with aclosing(deltas):
            async for delta in deltas:
                if delta.tokens:
                    tokens += delta.tokens
                    self._call.on_tokens(tokens)
                gathered.add(delta)
        return WholeAnswer(gathered.encode(self._id, self._call.model), gathered.usage, gathered.finish)


MESSAGES_ENDPOINT = Endpoint("messages", "/v1/messages", "chat", "messages", MessagesEnding(), _MessageHere, forwards=False)


@post("/v1/messages/count_tokens", status_code=200)
async def count_message_tokens(request: Request[Any, Any, Any], catalog: CatalogDependency) -> ASGIApp:
    """Say how many tokens the prompt of a conversation has."""
    body = await read_body(request, _COUNT_BODY)
    model = await settle_model(body.model, catalog, "chat", identity_of(request))
    name, backend = catalog.backend(model)
    asked = to_tokenize_request(body, model=name)
    tokens = await until_gone(request.scope, request.receive, backend.tokenize(asked))
    return JsonReply(to_token_count(tokens))
