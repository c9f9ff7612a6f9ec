"""Puts the deltas of an answer together, for clients that want it whole."""

from dataclasses import dataclass, field

from backends.errors import Failed
from backends.types import Delta, FinishReason, TokenLogprob, Usage


@dataclass(slots=True)
class Call:
    """A tool call that grows."""

    id: str
    name: str
    arguments: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Choice:
    """An answer that grows."""

    texts: list[str] = field(default_factory=list)
    logprobs: list[TokenLogprob] = field(default_factory=list)
    calls: dict[int, Call] = field(default_factory=dict)
    finish: FinishReason | None = None

    @property
    def text(self) -> str:
        """All text so far."""
        return "".join(self.texts)


class Answer:
    """All choices of one request.

    Args:
        size: the number of choices.
    """

    def __init__(self, size: int) -> None:
        self.choices = [Choice() for _ in range(size)]
        self.usage = Usage()

    def add(self, delta: Delta) -> None:
        """Take the next delta in."""
        choice = self.choices[delta.index]
        if delta.text:
            choice.texts.append(delta.text)
        if delta.logprobs:
            choice.logprobs.extend(delta.logprobs)
        for piece in delta.tool_calls:
            call = choice.calls.setdefault(piece.index, Call(piece.id or "", piece.name or ""))
            call.arguments.append(piece.arguments)
        if delta.finish is not None:
            choice.finish = delta.finish
        if delta.usage is not None:
            self.usage = delta.usage

    def finish_of(self, index: int) -> FinishReason:
        """Why a choice ended.

        Raises:
            Failed: the backend ended the stream without saying so.
        """
        reason = self.choices[index].finish
        if reason is None:
            raise Failed(f"The backend ended its answer without finishing choice {index}.")
        return reason
