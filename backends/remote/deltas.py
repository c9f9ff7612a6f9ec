"""The chunks of a stream as deltas that keep the contract of `Backend.generate`.

Upstreams end a choice with its own chunk, and may send the usage of all after the last one. So the last delta is held back
until the usage or the end is there. Pure: no connection, no clock.
"""

from typing import Any

from backends.errors import Failed
from backends.remote.errors import empty_answer, from_event, protocol_error
from backends.remote.json_fields import count, dicts, read_object, text
from backends.remote.meaning import CallIndexes, read_finish, read_usage
from backends.remote.wire_logprobs import read_chat_logprobs, read_legacy_logprobs
from backends.types import Chat, Delta, FinishReason, GenerateRequest, Text, TokenLogprob, ToolCallDelta, Usage


class DeltaReader:
    """Reads one answer. `ended` says that nothing more is to be read; then `close` gives the last delta."""

    def __init__(self, request: GenerateRequest) -> None:
        self._request = request
        self._is_chat = isinstance(request.prompt, Chat)
        self._open = set(range(request.n))
        self._silent = set(range(request.n))
        self._calls = [CallIndexes() for _ in range(request.n)]
        self._started: set[tuple[int, int]] = set()
        echoed = len(request.prompt.text) if request.echo and isinstance(request.prompt, Text) else 0
        self._echo_chars = [echoed] * request.n
        self._tokens = 0
        self._usage: Usage | None = None
        self._last: Delta | None = None
        self.ended = False

    def read(self, data: bytes) -> list[Delta]:
        """Take the data of one event; return the deltas that are complete now.

        Raises:
            BackendError: the upstream reports an error, or sends what is no chunk.
        """
        if data.startswith(b"[DONE]"):
            self.ended = True
            return []
        chunk = read_object(data, "event")
        if chunk.get("error"):
            raise from_event(chunk["error"])
        self._usage = read_usage(chunk.get("usage")) or self._usage
        deltas = [delta for choice in dicts(chunk.get("choices")) if (delta := self._choice(choice)) is not None]
        self._tokens += sum(delta.tokens for delta in deltas)
        if deltas and not self._open:
            self._last = deltas.pop()
        return deltas

    def close(self, *, properly: bool) -> list[Delta]:
        """The deltas that end the answer.

        Args:
            properly: the upstream said that this is the end; some then leave out a finish reason.

        Raises:
            Failed: a choice was cut off, or there was no output at all.
        """
        if len(self._silent) == self._request.n:
            raise empty_answer()
        if self._open and not properly:
            raise protocol_error("The upstream server ended its answer without a finish reason.")
        deltas = [Delta(index, finish="stop") for index in sorted(self._open)]
        last = self._last or deltas.pop()
        usage = self._usage or Usage(completion_tokens=self._tokens)
        missed = max(0, usage.completion_tokens - self._tokens)
        return [
            *deltas,
            Delta(
                last.index,
                last.text,
                last.tokens + missed,
                last.tool_calls,
                last.logprobs,
                last.finish,
                usage,
                last.reasoning,
                last.stop,
            ),
        ]

    def _choice(self, choice: dict[str, Any]) -> Delta | None:
        index = count(choice.get("index"))
        if index >= self._request.n:
            raise protocol_error(f"The upstream server answered with choice {index} of {self._request.n}.")
        if index not in self._open:
            return None
        raw = choice.get("delta")
        delta: dict[str, Any] = raw if isinstance(raw, dict) else {}
        shown = text(delta.get("content")) if self._is_chat else text(choice.get("text"))
        thought = text(delta.get("reasoning_content")) or text(delta.get("reasoning"))
        calls = self._tool_calls(index, delta)
        logprobs = self._logprobs(choice)
        finish = self._finish(choice)
        if not (shown or thought or calls or logprobs or finish):
            return None
        self._silent.discard(index)
        if finish is not None:
            self._open.discard(index)
        stop = text(choice.get("stop_reason")) if finish == "stop" else ""
        tokens = self._count(index, shown, logprobs, has_more=bool(thought or calls))
        return Delta(index, shown, tokens, calls, logprobs, finish, None, thought, stop or None)

    def _finish(self, choice: dict[str, Any]) -> FinishReason | None:
        value = choice.get("finish_reason")
        if value in ("error", "abort"):
            raise Failed(f"The upstream server ended its answer with the finish reason {value!r}.", code="upstream_error")
        return read_finish(value)

    def _logprobs(self, choice: dict[str, Any]) -> tuple[TokenLogprob, ...]:
        if self._request.logprobs is None:
            return ()
        value = choice.get("logprobs")
        return read_chat_logprobs(value) if self._is_chat else read_legacy_logprobs(value, self._request.logprobs)

    def _count(self, index: int, shown: str, logprobs: tuple[TokenLogprob, ...], *, has_more: bool) -> int:
        """How many generated tokens a piece stands for: as many as have log probabilities, else one."""
        echoed = min(self._echo_chars[index], len(shown))
        self._echo_chars[index] -= echoed
        if echoed == len(shown) and not has_more:
            return 0 if echoed or not logprobs else len(logprobs)
        return len(logprobs) or 1

    def _tool_calls(self, index: int, delta: dict[str, Any]) -> tuple[ToolCallDelta, ...]:
        found: list[ToolCallDelta] = []
        for call in dicts(delta.get("tool_calls")):
            number = self._calls[index].number(call.get("index"), call.get("id"))
            raw = call.get("function")
            function: dict[str, Any] = raw if isinstance(raw, dict) else {}
            arguments = text(function.get("arguments"))
            if (index, number) in self._started:
                found.append(ToolCallDelta(number, arguments=arguments))
                continue
            self._started.add((index, number))
            name = text(call.get("id")) or f"call_{self._request.id[-12:]}_{index}_{number}"
            found.append(ToolCallDelta(number, name, text(function.get("name")), arguments))
        return tuple(found)
