"""Where the deltas of one request wait for the task that reads them, and how a slow reader finds fewer, larger ones.

Knows deltas, no engine and no socket. Nothing here limits how much may wait: a request produces at most `n * max_tokens`
tokens, and the context bounds those. What waits is merged when it is taken, so that a slow reader also costs less per token.
"""

import asyncio
from collections.abc import Sequence

from backends.errors import BackendError
from backends.types import Delta, ToolCallDelta


class Mailbox:
    """One writer (the socket's callback) and one reader (the request's task) on the same event loop."""

    __slots__ = ("_deltas", "_error", "_waiter")

    def __init__(self) -> None:
        self._deltas: list[Delta] = []
        self._error: BackendError | None = None
        self._waiter: asyncio.Future[None] | None = None

    def put(self, delta: Delta) -> None:
        """Add what came."""
        self._deltas.append(delta)
        self._wake()

    def fail(self, error: BackendError) -> None:
        """Let `take` raise once everything that came before was read."""
        self._error = error
        self._wake()

    async def take(self) -> Sequence[Delta]:
        """Wait until something is there and return all of it, in order, merged.

        Raises:
            BackendError: the one that `fail` was given, when nothing else is left.
        """
        if not self._deltas:
            if self._error is None:
                self._waiter = asyncio.get_running_loop().create_future()
                try:
                    await self._waiter
                finally:
                    self._waiter = None
            if not self._deltas:
                assert self._error is not None, "woken for nothing"
                raise self._error
        deltas, self._deltas = self._deltas, []
        return deltas if len(deltas) == 1 else merge(deltas)

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


def merge(deltas: Sequence[Delta]) -> list[Delta]:
    """Join what belongs to the same choice; the order within a choice is kept, and usage stays in the last delta of all.

    Choices are independent of each other, so deltas of one choice are joined although others stand between them.
    """
    runs: dict[int, list[list[Delta]]] = {}
    for delta in deltas:
        parts = runs.setdefault(delta.index, [])
        if parts and _may_follow(parts[-1][-1], delta):
            parts[-1].append(delta)
        else:
            parts.append([delta])
    last = runs.pop(deltas[-1].index)
    return [_join(part) for parts in (*runs.values(), last) for part in parts]


def _may_follow(before: Delta, delta: Delta) -> bool:
    # One delta means: first its reasoning, then its text, then its calls. What came in another order would change places.
    if before.finish is not None or (before.tool_calls and delta.text):
        return False
    return not (delta.reasoning and (before.text or before.tool_calls))


def _join(part: list[Delta]) -> Delta:
    if len(part) == 1:
        return part[0]
    last = part[-1]
    return Delta(
        last.index,
        "".join([delta.text for delta in part]),
        sum([delta.tokens for delta in part]),
        _join_calls([call for delta in part for call in delta.tool_calls]),
        tuple([item for delta in part for item in delta.logprobs]),
        last.finish,
        last.usage,
        "".join([delta.reasoning for delta in part]),
        last.stop,
    )


def _join_calls(calls: list[ToolCallDelta]) -> tuple[ToolCallDelta, ...]:
    joined: list[ToolCallDelta] = []
    arguments: list[list[str]] = []
    for call in calls:
        if joined and call.index == joined[-1].index and call.id is None and call.name is None:
            arguments[-1].append(call.arguments)
        else:
            joined.append(call)
            arguments.append([call.arguments])
    return tuple(
        ToolCallDelta(call.index, call.id, call.name, "".join(pieces)) for call, pieces in zip(joined, arguments, strict=True)
    )
