"""One request for a response: what is asked of a backend, and what becomes of the answer."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Self

import msgspec

from backends.errors import ContextOverflow, Failed, Rejected
from backends.types import Delta, GenerateRequest, Usage
from gateway.call import Call
from gateway.dispatch.answer import Answer, StreamedAnswer, WholeAnswer
from gateway.errors import ApiError
from gateway.routes.responses_state import ResponsesState, Turn, conversation_id, load_history
from gateway.routing.deployment import Deployment
from gateway.schema.responses import ResponseRequest
from gateway.schema.responses_answer import ResponseObject
from gateway.translate.head import BYTES_PER_TOKEN, prefix_hashes
from gateway.translate.responses import to_object, to_request
from gateway.translate.responses_draft import Draft
from gateway.translate.responses_events import ResponseEvents
from gateway.translate.responses_items import new_id, to_items

_PARAMS = {"messages": "input", "response_format": "text.format", "max_tokens": "max_output_tokens"}
"""What backends name after chat's parameters, and what that is called here."""


class _EventAnswer(StreamedAnswer):
    """A stream that knows how far it has come."""

    def __init__(self, deltas: AsyncGenerator[Delta], events: ResponseEvents) -> None:
        super().__init__(deltas, events)
        self.events = events


class _WholeResponse(WholeAnswer):
    """A complete answer whose body is written when it is known to be the one that counts."""

    def __init__(self, draft: Draft, usage: Usage | None) -> None:
        super().__init__(b"", usage, draft.finish)
        self.draft = draft


class AskedResponse:
    """Opens attempts, each with a draft of its own, and ends the stream of the one that was chosen."""

    done = ResponseEvents.done

    def __init__(self, request: GenerateRequest, blank: ResponseObject, turn: Turn, call: Call, state: ResponsesState) -> None:
        self._request = request
        self._blank = blank
        self._turn = turn
        self._call = call
        self._state = state
        self._events = ResponseEvents(Draft(blank))
        self._is_kept = False

    @classmethod
    async def read(cls, body: ResponseRequest, call: Call, state: ResponsesState, *, by_prefix: bool) -> Self:
        """Fetch the turns before this one, translate all of them, and tell the call what it takes.

        Args:
            by_prefix: whether routing looks at the prompt.

        Raises:
            InvalidRequest: the body is wrong, or refers to what is not kept.
            ContextUnavailable: the store does not answer.
        """
        tenant, conversation = call.identity.tenant, conversation_id(body)
        fresh = to_items(body.input)
        items = (*await load_history(state, tenant, body), *fresh)
        blank = to_object(body, response_id=new_id("resp"), model=call.model)
        request = to_request(body, items, request_id=blank.id, model=call.model, tenant=tenant)
        call.max_tokens = request.max_tokens or 0
        content = msgspec.json.encode(request.prompt)
        call.prompt_tokens = len(content) // BYTES_PER_TOKEN + 1
        if by_prefix:
            call.prefix = prefix_hashes(msgspec.Raw(content))
        call.session = call.session or conversation or body.prompt_cache_key or body.user or ""
        return cls(request, blank, Turn(tenant, conversation, items, len(fresh)), call, state)

    async def open(self, deployment: Deployment, *, stream: bool) -> Answer:
        """Start to answer."""
        draft = Draft(self._blank)
        request = msgspec.structs.replace(self._request, model=deployment.name)
        deltas = self._follow(deployment.backend.generate(request), draft, stream=stream)
        if stream:
            return await _EventAnswer(deltas, ResponseEvents(draft)).begin()
        tokens, last = 0, Delta()
        async with aclosing(deltas):
            async for last in deltas:
                tokens += last.tokens
                self._call.on_tokens(tokens)
        if last.usage is None:
            raise Failed("The backend ended its answer without saying so.")
        return _WholeResponse(draft, last.usage)

    async def choose(self, answer: Answer) -> None:
        """Take the answer of the attempt that is sent to the client.

        Raises:
            ContextUnavailable: the conversation cannot be written.
            TooLarge: the turn does not fit into the conversation.
        """
        if isinstance(answer, _EventAnswer):
            self._events = answer.events
        elif isinstance(answer, _WholeResponse):
            await self._keep(answer.draft)
            answer.first = answer.draft.body()

    def error(self, error: ApiError) -> bytes:
        """The events for what broke after the stream had begun."""
        return self._events.error(error)

    async def _keep(self, draft: Draft) -> None:
        """Write the turn down, once: a hedged attempt may come to its end as well."""
        if not self._is_kept:
            self._is_kept = True
            await self._turn.keep(self._state, draft)

    async def _follow(self, source: AsyncGenerator[Delta], draft: Draft, *, stream: bool) -> AsyncGenerator[Delta]:
        """Pass deltas on, each after the draft has it; the last one of a stream after the turn was kept."""
        try:
            async with aclosing(source) as deltas:
                async for delta in deltas:
                    draft.add(delta)
                    if stream and delta.usage is not None:
                        await self._keep(draft)
                    yield delta
        except Rejected as error:
            error.param = _renamed(error)
            raise


def _renamed(error: Rejected) -> str | None:
    param = error.param
    if param is None:
        return "input" if isinstance(error, ContextOverflow) else None
    return _PARAMS.get(param.partition("[")[0], param)
