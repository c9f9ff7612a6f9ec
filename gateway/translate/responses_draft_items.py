"""The items of a response while they grow: messages, thoughts and function calls.

`opened` is an item at its first moment, `item` what it is now.
"""

from backends.types import TokenLogprob, ToolCallDelta
from gateway.schema.responses_answer import FunctionCallItem, MessageItem, ReasoningItem, ReasoningPart, TextPart
from gateway.schema.responses_items import ItemStatus
from gateway.translate.logprobs import to_chat_logprobs
from gateway.translate.responses_items import new_id


class DraftMessage:
    """A message. `index` is its place in the output."""

    def __init__(self, index: int) -> None:
        self.id = new_id("msg")
        self.index = index
        self.status: ItemStatus = "in_progress"
        self.texts: list[str] = []
        self.logprobs: list[TokenLogprob] = []

    def opened(self) -> MessageItem:
        """Without its part, which is announced by itself."""
        return MessageItem(self.id, "in_progress", "assistant", [])

    def part(self) -> TextPart:
        """All its text."""
        return TextPart("".join(self.texts), [], to_chat_logprobs(self.logprobs).content)

    def item(self) -> MessageItem:
        """The message so far."""
        return MessageItem(self.id, self.status, "assistant", [self.part()])


class DraftReasoning:
    """What a model writes for itself before it answers."""

    def __init__(self, index: int) -> None:
        self.id = new_id("rs")
        self.index = index
        self.status: ItemStatus = "in_progress"
        self.texts: list[str] = []

    def opened(self) -> ReasoningItem:
        """Without its part, which is announced by itself."""
        return ReasoningItem(self.id, "in_progress", [], [])

    def part(self) -> ReasoningPart:
        """All its text."""
        return ReasoningPart("".join(self.texts))

    def item(self) -> ReasoningItem:
        """The thoughts so far."""
        return ReasoningItem(self.id, self.status, [], [self.part()])


class DraftCall:
    """A function call, from its first piece on. Backends name calls; one that did not gets an id here."""

    def __init__(self, index: int, piece: ToolCallDelta) -> None:
        self.id = new_id("fc")
        self.index = index
        self.status: ItemStatus = "in_progress"
        self.arguments: list[str] = []
        self._call_id = piece.id or new_id("call")
        self._name = piece.name or ""

    def opened(self) -> FunctionCallItem:
        """Without arguments."""
        return FunctionCallItem(self.id, "in_progress", self._call_id, self._name, "")

    def item(self) -> FunctionCallItem:
        """The call so far."""
        return FunctionCallItem(self.id, self.status, self._call_id, self._name, "".join(self.arguments))


DraftText = DraftMessage | DraftReasoning
DraftItem = DraftText | DraftCall
