"""What a request asks for, as far as serving it needs to know: its head, and the call that queue, limits and routing see.

Clients steer with headers, which every OpenAI client can set: `x-baton-priority` (a class that the key may claim),
`x-baton-session` (ties the requests of a conversation together), `x-baton-tags` (deployments must have all of them),
`x-baton-timeout` (seconds within which the request must begin to run), `x-baton-cache` (use, refresh or off) and
`x-baton-conversation` (the id of a kept conversation, of which the body holds only the new turn).
"""

from time import monotonic

from litestar.types import Receive, Scope

from gateway.call import Call
from gateway.errors import InvalidRequest, MethodNotSupported
from gateway.identity import ANONYMOUS, Identity
from gateway.priority import PRIORITIES, Priority
from gateway.translate.body import Body
from gateway.translate.head import Head

_HEAD = Body(Head)
_PREFIX = b"x-baton-"
_MAX_SESSION_CHARS = 128
_MAX_TAGS = 8


class Asked:
    """One request of an endpoint that generates."""

    __slots__ = ("body", "call", "head", "headers")

    def __init__(self, scope: Scope, endpoint: str, body: bytes) -> None:
        """Raises InvalidRequest when the head or a steering header is wrong."""
        self.body = body
        self.head = _HEAD.decode(body)
        self.headers: list[tuple[bytes, bytes]] = scope["headers"]  # type: ignore[assignment]
        self.call = new_call(scope, endpoint, self.head.model or "")
        self.call.units = self.head.n or 1
        self.call.max_tokens = self.head.answer_tokens
        self.call.prompt_tokens = self.head.prompt_tokens
        self.call.session = self.call.session or self.call.conversation or self.head.prompt_cache_key or self.head.user or ""

    def replace_body(self, body: bytes) -> None:
        """Ask for something else instead, before anybody has looked at the body."""
        self.body = body
        self.head = _HEAD.decode(body)
        self.call.prompt_tokens = self.head.prompt_tokens


def demand_post(scope: Scope) -> None:
    """Refuse what plain ASGI handlers are also called for. Raises MethodNotSupported."""
    method, path = scope["method"], scope["path"]  # type: ignore[typeddict-item]
    if method != "POST":
        raise MethodNotSupported(f"Method {method[:20]} is not allowed for {path[:200]}.", headers={"allow": "POST, OPTIONS"})


async def read_whole(receive: Receive) -> bytes:
    """The body, which the middleware has put into one message."""
    message = await receive()
    return message.get("body", b"")  # type: ignore[return-value]


def new_call(scope: Scope, endpoint: str, model: str) -> Call:
    """Build the call of a request from who sends it and from its steering headers. Raises InvalidRequest."""
    state = scope["state"]
    identity: Identity = state.get("identity", ANONYMOUS)
    call = Call(state.get("request_id", ""), endpoint, model, identity)
    state["call"] = call
    for name, value in scope["headers"]:
        if name.startswith(_PREFIX):
            _steer(call, name[len(_PREFIX) :], value.decode("latin-1").strip())
    return call


def _steer(call: Call, name: bytes, value: str) -> None:
    if name == b"priority":
        call.priority = _priority(value, call.identity)
    elif name == b"session":
        call.session = value[:_MAX_SESSION_CHARS]
    elif name == b"tags":
        call.tags = _tags(value)
    elif name == b"cache":
        call.cache = value
    elif name == b"conversation":
        call.conversation = value
    elif name == b"timeout":
        call.deadline = monotonic() + _seconds(value)


def _priority(value: str, identity: Identity) -> Priority:
    if value not in PRIORITIES:
        text = f"The header 'x-baton-priority' must be one of {', '.join(PRIORITIES)}, not '{value[:40]}'."
        raise InvalidRequest(text, param="x-baton-priority", code="invalid_value")
    if PRIORITIES.index(value) < PRIORITIES.index(identity.priority):
        text = f"This key may not claim the priority '{value}': its best is '{identity.priority}'."
        raise InvalidRequest(text, param="x-baton-priority", code="priority_not_allowed")
    return value


def _tags(value: str) -> frozenset[str]:
    tags = frozenset(tag.strip() for tag in value.split(",") if tag.strip())
    if len(tags) > _MAX_TAGS:
        text = f"The header 'x-baton-tags' may have up to {_MAX_TAGS} names, not {len(tags)}."
        raise InvalidRequest(text, param="x-baton-tags", code="invalid_value")
    return tags


def _seconds(value: str) -> float:
    try:
        seconds = float(value)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= 86400:
        text = f"The header 'x-baton-timeout' must be a number of seconds above 0 and up to 86400, not '{value[:40]}'."
        raise InvalidRequest(text, param="x-baton-timeout", code="invalid_value")
    return seconds
