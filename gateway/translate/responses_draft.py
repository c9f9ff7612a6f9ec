"""A response while it grows: what each delta does to its items, and the response object at any moment.

A message ends when a call begins, and text after calls is a message of its own. Calls stay open to the end, because a backend
may write several at a time.
"""

import time
from collections.abc import Callable
from typing import Literal, NamedTuple

import msgspec

from backends.types import Delta, FinishReason, TokenLogprob, ToolCallDelta, Usage
from gateway.schema.responses_answer import (
    IncompleteDetails,
    InputTokensDetails,
    OutputTokensDetails,
    ResponseError,
    ResponseObject,
    ResponseUsage,
)
from gateway.schema.responses_items import ItemStatus
from gateway.translate.responses_draft_items import DraftCall, DraftItem, DraftMessage, DraftReasoning, DraftText

_encode = msgspec.json.Encoder().encode

_DETAILS: dict[FinishReason | None, IncompleteDetails] = {
    "length": IncompleteDetails("max_output_tokens"),
    "content_filter": IncompleteDetails("content_filter"),
}


class Step(NamedTuple):
    """One thing that a delta did: it opened or closed an item, or added to its text or arguments."""

    kind: Literal["open", "add", "close"]
    item: DraftItem
    text: str = ""
    logprobs: tuple[TokenLogprob, ...] = ()


class Draft:
    """One response. `steps` says what the last delta did, for those who tell it on; `finish` why the model stopped.

    Args:
        response: as it is before anything was generated.
        clock: Unix seconds.
    """

    def __init__(self, response: ResponseObject, *, clock: Callable[[], float] = time.time) -> None:
        self.response = response
        self.items: list[DraftItem] = []
        self.steps: list[Step] = []
        self._clock = clock
        self._speaking: DraftText | None = None
        self._calls: dict[int, DraftCall] = {}
        self.finish: FinishReason | None = None

    def add(self, delta: Delta) -> None:
        """Take the next delta in; the one with the usage ends the response."""
        self.steps = []
        if delta.reasoning:
            self._say(DraftReasoning, delta.reasoning, ())
        if delta.text or delta.logprobs:
            self._say(DraftMessage, delta.text, delta.logprobs)
        for piece in delta.tool_calls:
            self._call(piece)
        self.finish = self.finish or delta.finish
        if delta.usage is not None:
            self._end(delta.usage)

    def fail(self, code: str, message: str) -> None:
        """End the response because something broke; what had not ended by then is incomplete."""
        self._close_all("incomplete")
        output = [item.item() for item in self.items]
        error = ResponseError(code, message)
        self.response = msgspec.structs.replace(self.response, status="failed", error=error, output=output)

    def not_stored(self) -> None:
        """Note that the response could not be kept."""
        self.response = msgspec.structs.replace(self.response, store=False)

    def body(self) -> bytes:
        """The response object as JSON."""
        return _encode(self.response)

    def _say(self, kind: type[DraftText], text: str, logprobs: tuple[TokenLogprob, ...]) -> None:
        item = self._speaking
        if not isinstance(item, kind):
            self._stop_speaking()
            item = self._speaking = kind(len(self.items))
            self._open(item)
        item.texts.append(text)
        if logprobs and isinstance(item, DraftMessage):
            item.logprobs += logprobs
        self.steps.append(Step("add", item, text, logprobs))

    def _call(self, piece: ToolCallDelta) -> None:
        call = self._calls.get(piece.index)
        if call is None:
            self._stop_speaking()
            call = self._calls[piece.index] = DraftCall(len(self.items), piece)
            self._open(call)
        if piece.arguments:
            call.arguments.append(piece.arguments)
            self.steps.append(Step("add", call, piece.arguments))

    def _open(self, item: DraftItem) -> None:
        self.items.append(item)
        self.steps.append(Step("open", item))

    def _stop_speaking(self) -> None:
        if self._speaking is not None:
            self._close(self._speaking, "completed")
            self._speaking = None

    def _close(self, item: DraftItem, status: ItemStatus) -> None:
        item.status = status
        self.steps.append(Step("close", item))

    def _close_all(self, last: ItemStatus) -> None:
        for item in self.items:
            if item.status == "in_progress":
                self._close(item, last if item is self.items[-1] else "completed")

    def _end(self, usage: Usage) -> None:
        if not self.items:
            self._open(DraftMessage(0))
        details = _DETAILS.get(self.finish)
        self._close_all("completed" if details is None else "incomplete")
        self.response = msgspec.structs.replace(
            self.response,
            status="completed" if details is None else "incomplete",
            completed_at=int(self._clock()) if details is None else None,
            incomplete_details=details,
            output=[item.item() for item in self.items],
            usage=_to_wire_usage(usage),
        )


def _to_wire_usage(usage: Usage) -> ResponseUsage:
    return ResponseUsage(
        input_tokens=usage.prompt_tokens,
        input_tokens_details=InputTokensDetails(usage.cached_tokens),
        output_tokens=usage.completion_tokens,
        output_tokens_details=OutputTokensDetails(),
        total_tokens=usage.total_tokens,
    )
