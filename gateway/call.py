"""One request on its way: what queue, limits and routing may know of it, and what they write down about it.

Mutable on purpose, and owned by the task that serves the request: the trail is read when the response begins.
"""

from collections.abc import Callable

from backends.types import FinishReason, Usage
from gateway.identity import ANONYMOUS, Identity
from gateway.priority import Priority


class Trail:
    """What happened to a call. `deployment` is the one that answered; `fallback` names the model that stood in, and `reason`
    says why. `waited_s` was spent in the admission queue, `first_output_s` passed from the call to its first output (0: there
    was none). `error` is the code of the error it ended with."""

    __slots__ = (
        "attempts",
        "canary",
        "cost_usd",
        "deployment",
        "error",
        "fallback",
        "finish",
        "first_output_s",
        "hedged",
        "reason",
        "waited_s",
    )

    def __init__(self) -> None:
        self.deployment = ""
        self.error = ""
        self.attempts = 0
        self.fallback = ""
        self.reason = ""
        self.canary = False
        self.hedged = False
        self.waited_s = 0.0
        self.first_output_s = 0.0
        self.finish: FinishReason | None = None
        self.cost_usd = 0.0


class Call:
    """What is asked for, apart from the content.

    Attributes:
        id: the request's id, for logs.
        model: the public name that the client wrote.
        identity: whose request it is.
        session: what ties the requests of one conversation together; empty when unknown.
        prefix: hashes of the leading blocks of the prompt, the longest prefix last; for prefix affinity.
        tags: deployments must carry all of them.
        priority: the class it queues in.
        deadline: monotonic seconds after which it no longer makes sense to begin; None for never.
        units: how much of a queue's capacity it takes (the number of choices).
        prompt_tokens: an estimate, for reservations; 0 when unknown.
        max_tokens: what the answer may take in all choices; 0 when the client set no bound.
        usage: what it took, once that is known.
        headers: what limits and caches want the response to say.
        cache: what the client wants of the response cache; empty when it does not say.
        conversation: the kept conversation that a chat continues; empty for none.
        on_tokens: told how many tokens have come so far, where output is gathered before it is shown.
    """

    __slots__ = (
        "cache",
        "conversation",
        "deadline",
        "endpoint",
        "headers",
        "id",
        "identity",
        "max_tokens",
        "model",
        "on_tokens",
        "prefix",
        "priority",
        "prompt_tokens",
        "session",
        "tags",
        "trail",
        "units",
        "usage",
    )

    def __init__(self, id: str, endpoint: str, model: str, identity: Identity = ANONYMOUS) -> None:
        self.id = id
        self.endpoint = endpoint
        self.model = model
        self.identity = identity
        self.session = ""
        self.cache = ""
        self.conversation = ""
        self.prefix: tuple[int, ...] = ()
        self.tags: frozenset[str] = frozenset()
        self.priority: Priority = identity.priority
        self.deadline: float | None = None
        self.units = 1
        self.prompt_tokens = 0
        self.max_tokens = 0
        self.usage: Usage | None = None
        self.headers: list[tuple[bytes, bytes]] = []
        self.on_tokens: Callable[[int], None] = _nobody
        self.trail = Trail()


def _nobody(_: int) -> None:
    pass
