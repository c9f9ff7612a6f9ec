"""The text of a model that may call tools, split into content and calls while it streams.

Three ways of writing a call are known: Hermes and Qwen (`<tool_call>{...}</tool_call>`), Mistral (`[TOOL_CALLS][{...}, ...]`)
and a bare object or list at the very beginning of the answer (Llama 3). Text around calls is content, verbatim, apart from
white space between calls. What is not a call after all comes out as content: nothing is lost, nothing raises. How the text is
cut into pieces makes no difference to the result. Knows nothing about schemas: whether arguments are right is for the grammar
(`constraint`) and the client.
"""

import re
import secrets
import string
from collections.abc import Collection
from typing import Literal

from backends.text.call_scanner import CallScanner
from backends.types import ToolCallDelta

ToolFormat = Literal["hermes", "mistral", "json"]

MARKERS: dict[ToolFormat, str] = {"hermes": "<tool_call>", "mistral": "[TOOL_CALLS]"}
"""What begins a call. Where it is a control token of the vocabulary its piece must still be this text, not empty."""
HERMES_END = "</tool_call>"

_JSON_CALL = re.compile(r'\\?"arguments\\?"')
_LLAMA_CALL = '{"name": function name, "parameters": '
_ALPHABET = string.ascii_letters + string.digits
_SPACE = " \t\r\n"


def detect_format(template: str | None) -> ToolFormat | None:
    """Tell from a chat template how its model writes calls; None when it is in none of the ways that are read here.

    Checked against the templates that llama.cpp collects (`models/templates`): many models share a marker and write another
    format behind it (Qwen3-Coder and GLM write XML after `<tool_call>`, newer Mistral models `[ARGS]`).
    """
    if template is None:
        return None
    if MARKERS["mistral"] in template:
        return None if "[ARGS]" in template else "mistral"
    if MARKERS["hermes"] in template and _JSON_CALL.search(template):
        return "hermes"
    return "json" if _LLAMA_CALL in template else None


def new_call_id() -> str:
    """Return `call_` and 24 random letters and digits."""
    return "call_" + "".join(secrets.choice(_ALPHABET) for _ in range(24))


class ToolParser:
    """Parses one answer. With `names`, an object that calls anything else is not a call but content.

    The text not yet decided upon is a queue: every character is in turn shown as content or swallowed as part of a call.
    """

    def __init__(self, tool_format: ToolFormat, names: Collection[str] = ()) -> None:
        self._names = frozenset(names)
        self._hermes = tool_format == "hermes"
        self._marker = MARKERS.get(tool_format, "")
        self._step = self._text if self._marker else self._start
        self._raw = ""
        self._at = 0
        self._blank = True
        self._in_list = self._after_call = self._in_call = False
        self._scanner = CallScanner(self._names)
        self._announced = False
        self._content: list[str] = []
        self._deltas: list[ToolCallDelta] = []
        self.num_calls = 0
        self.settled = 0
        """Position in the whole text up to which everything is decided."""
        self.shown: list[tuple[int, int]] = []
        """Where the content of the last `push` or `flush` stands in the whole text, as `(start, end)`."""

    @property
    def in_call(self) -> bool:
        """Whether the text so far ends inside a call."""
        return self._in_call

    def push(self, text: str) -> tuple[str, tuple[ToolCallDelta, ...]]:
        """Take text; return the content and the pieces of calls that are certain now."""
        self.shown = []
        self._raw += text
        while self._step():
            pass
        return self._take()

    def flush(self) -> tuple[str, tuple[ToolCallDelta, ...]]:
        """End the text: the beginning of a call that never came becomes content; one that broke off stays as it is."""
        self.shown = []
        if self._in_call or (self.num_calls and self._blank and not self._raw.strip(_SPACE)):
            self._hide(len(self._raw))
        else:
            self._show(len(self._raw))
        return self._take()

    def _take(self) -> tuple[str, tuple[ToolCallDelta, ...]]:
        result = "".join(self._content), tuple(self._deltas)
        self._content, self._deltas = [], []
        return result

    def _show(self, count: int) -> None:
        if count:
            self._content.append(self._raw[:count])
            self.shown.append((self.settled, self.settled + count))
            self._blank = False
        self._hide(count)

    def _hide(self, count: int) -> None:
        self._raw = self._raw[count:]
        self.settled += count
        self._at = max(0, self._at - count)

    # Each step decides about some text and returns whether the next step can go on without more of it.

    def _text(self) -> bool:
        """Outside of calls: show what cannot be the beginning of a marker, nor white space between calls."""
        found = self._raw.find(self._marker)
        end = found if found >= 0 else len(self._raw) - _overlap(self._raw, self._marker)
        if not (self._blank and not self._raw[:end].strip(_SPACE)):
            self._show(end)
        elif found >= 0:
            self._hide(end)
        if found < 0:
            return False
        self._at, self._step = len(self._marker), self._gap
        return True

    def _start(self) -> bool:
        """At the beginning of an answer that may be a bare call."""
        self._at = _skip_space(self._raw, 0)
        if self._at == len(self._raw):
            return False
        self._step = self._gap if self._raw[self._at] in "{[" else self._plain
        return True

    def _plain(self) -> bool:
        self._show(len(self._raw))
        return False

    def _gap(self) -> bool:
        """Where an object, a bracket or a separator must stand."""
        self._at = _skip_space(self._raw, self._at)
        if self._at == len(self._raw):
            return False
        char = self._raw[self._at]
        if char == "{" and not (self._in_list and self._after_call):
            self._scanner, self._announced = CallScanner(self._names), False
            self._step = self._object
        elif char == "[" and not self._in_list and not self._after_call and not self._hermes:
            self._in_list, self._at = True, self._at + 1
        elif char == ("," if self._in_list else ";") and self._after_call:
            self._after_call, self._at = False, self._at + 1
        elif char == "]" and self._in_list and self._after_call:
            self._hide(self._at + 1)
            self._leave()
        else:
            self._give_up()
        return True

    def _object(self) -> bool:
        scanner = self._scanner
        self._at = scanner.feed(self._raw, self._at)
        if scanner.committed:
            self._report(scanner)
            self._in_call = True
            self._hide(scanner.settled)
        if scanner.status == "open":
            return False
        if scanner.status == "bad":
            self._give_up()
        else:
            self._after_call, self._step = True, self._end if self._hermes else self._gap
        return True

    def _end(self) -> bool:
        """Where the closing marker must stand."""
        rest = self._raw[_skip_space(self._raw, 0) :]
        if rest.startswith(HERMES_END):
            self._hide(len(self._raw) - len(rest) + len(HERMES_END))
        elif HERMES_END.startswith(rest):
            return False
        self._leave()
        return True

    def _report(self, scanner: CallScanner) -> None:
        if not self._announced:
            self._deltas.append(ToolCallDelta(self.num_calls, new_call_id(), scanner.name))
            self.num_calls += 1
            self._announced = True
        arguments = scanner.take()
        if arguments:
            self._deltas.append(ToolCallDelta(self.num_calls - 1, arguments=arguments))

    def _give_up(self) -> None:
        """What stands at `_at` fits no call. After a call its remains are looked at again as text, else they are content."""
        if not self._in_call:
            self._show(self._at)
        self._leave()

    def _leave(self) -> None:
        self._blank = self._in_call
        self._in_list = self._after_call = self._in_call = False
        self._at, self._step = 0, self._text if self._marker else self._plain


def _skip_space(text: str, at: int) -> int:
    while at < len(text) and text[at] in _SPACE:
        at += 1
    return at


def _overlap(text: str, marker: str) -> int:
    """How many characters of `marker`, but not all, `text` ends with."""
    for size in range(min(len(text), len(marker) - 1), 0, -1):
        if text.endswith(marker[:size]):
            return size
    return 0
