"""Tokens of one choice to the deltas of its answer: characters, then stop strings, then tool calls, and log probabilities.

This runs once per token, so the plain case (complete characters, no stop strings, no tools) is one decode and one `Delta`.
Knows token bytes; why generation ends otherwise (end token, budget, cancellation) is the engine's business.
"""

from collections.abc import Collection, Sequence

from backends.text.alignment import LogprobQueue
from backends.text.stop import StopMatcher
from backends.text.tool_parser import ToolFormat, ToolParser
from backends.text.utf8 import Utf8Stream
from backends.types import Alternative, Delta, FinishReason, TokenLogprob, ToolCallDelta


class Answer:
    """One choice while it is generated.

    Args:
        index: number of the choice.
        stops: stop strings, none of them empty.
        tool_format: how the model writes calls; None when no tools are on offer, then everything is text.
        tool_names: the functions on offer; a call of any other is text.

    Raises:
        Rejected: a stop string is empty.
    """

    __slots__ = (
        "_decoded",
        "_index",
        "_matcher",
        "_parser",
        "_queue",
        "_released",
        "_shown",
        "_tokens",
        "_utf8",
        "stop_match",
    )

    def __init__(
        self,
        index: int,
        stops: Sequence[str] = (),
        tool_format: ToolFormat | None = None,
        tool_names: Collection[str] = (),
    ) -> None:
        self._index = index
        self._utf8 = Utf8Stream()
        self._matcher = StopMatcher(stops) if stops else None
        self._parser = ToolParser(tool_format, tool_names) if tool_format is not None else None
        self._queue: LogprobQueue | None = None
        self._released: list[TokenLogprob] = []
        self._tokens = 0
        self._decoded = 0
        self._shown = 0
        self.stop_match: str | None = None
        """The stop string that ended the answer."""

    @property
    def stopped(self) -> bool:
        """Whether a stop string was found: push nothing more, call `finish("stop")`."""
        return self.stop_match is not None

    def push(
        self, token_id: int, piece: bytes, logprob: float | None = None, top: tuple[Alternative, ...] = ()
    ) -> Delta | None:
        """Take a generated token; return what can be shown now, or None if that is nothing.

        Args:
            piece: the token's exact bytes; the texts of control tokens that begin tool calls included.
            logprob: natural logarithm; None when log probabilities are not wanted.
            top: the alternatives beside it.
        """
        self._tokens += 1
        text = self._utf8.push(piece)
        if self._matcher is None and self._parser is None and logprob is None and self._queue is None:
            if not text:
                return None
            tokens, self._tokens = self._tokens, 0
            return Delta(self._index, text, tokens)
        start, self._decoded = self._decoded, self._decoded + len(text)
        if logprob is not None:
            if self._queue is None:
                self._queue = LogprobQueue()
                self._shown = start
            end = self._decoded + 1 if self._utf8.pending else self._decoded
            self._queue.add(start, end, TokenLogprob(token_id, piece, logprob, top))
        shown, calls = self._advance(text)
        return self._delta(shown, calls) if shown or calls else None

    def finish(self, reason: FinishReason) -> Delta:
        """End the answer; return the last delta, with all that was held back.

        A reason of `stop` becomes `tool_calls` when there was a call.
        """
        shown, calls = "", tuple[ToolCallDelta, ...]()
        if not self.stopped:
            text = self._utf8.flush()
            self._decoded += len(text)
            shown, calls = self._advance(text, flush=True)
        if self._parser is not None:
            was_cut = self.stopped and self._parser.in_call  # a stop string inside of the arguments
            rest, more = self._parser.flush()
            shown, calls = shown + rest, calls + more
            self._settle(self._parser.settled, self._parser.shown)
            if self._parser.num_calls and reason == "stop" and not was_cut:
                reason = "tool_calls"
        if self._queue is not None:
            self._released += self._queue.cut()
        return self._delta(shown, calls, reason)

    def _advance(self, text: str, flush: bool = False) -> tuple[str, tuple[ToolCallDelta, ...]]:
        """Move decoded text on through stop strings and tool calls; return what comes out at the end."""
        if self._matcher is not None:
            text, self.stop_match = self._matcher.push(text)
            if flush and self.stop_match is None:
                text += self._matcher.flush()
        if self._parser is None:
            start, self._shown = self._shown, self._shown + len(text)
            self._settle(self._shown, ((start, self._shown),))
            return text, ()
        content, calls = self._parser.push(text)
        self._settle(self._parser.settled, self._parser.shown)
        return content, calls

    def _settle(self, settled: int, shown: Sequence[tuple[int, int]]) -> None:
        if self._queue is not None:
            self._released += self._queue.release(settled, shown)

    def _delta(self, text: str, calls: tuple[ToolCallDelta, ...], finish: FinishReason | None = None) -> Delta:
        tokens, self._tokens = self._tokens, 0
        released, self._released = tuple(self._released), []
        return Delta(self._index, text, tokens, calls, released, finish, stop=self.stop_match if finish else None)
