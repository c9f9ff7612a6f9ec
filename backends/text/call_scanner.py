"""One tool call as a model writes it: `{"name": "f", "arguments": {...}}`, read while it is still being written.

The scanner looks at strings, braces and the keys of the outer object, nothing else: what stands inside the arguments is passed
on as it is, because only the client can say whether it is right. `parameters` is Llama's word for `arguments`; some models
write the arguments as a string that holds JSON, or null. Knows no markers and no text around the object (see `tool_parser`).
"""

import re
from collections.abc import Collection

import msgspec

_SPACE = " \t\r\n"
_MAX_KEY_CHARS = 256
_STRUCTURE = re.compile(r'["{}\[\]]')
_STRING_END = re.compile(r'["\\]')
_SCALAR_END = re.compile(r"[,}\s]")
_ARGUMENT_KEYS = ("arguments", "parameters")
_OTHER_KEYS = ("type", "id")

_decode_string = msgspec.json.Decoder(str).decode


class CallScanner:
    """Reads one object: `status` is `open` until it becomes `closed` (a call) or `bad` (no call, or garbage after it)."""

    __slots__ = (
        "_arguments",
        "_depth",
        "_escaped",
        "_in_string",
        "_key",
        "_names",
        "_parts",
        "_size",
        "_state",
        "committed",
        "name",
        "settled",
        "status",
    )

    def __init__(self, names: Collection[str]) -> None:
        self._names = names
        self._state = self._open
        self._key = ""
        self._parts: list[str] = []
        self._size = 0
        self._depth = 0
        self._in_string = self._escaped = False
        self._arguments: str | None = None
        self.name: str | None = None
        self.committed = False
        """Whether name and beginning of the arguments are known: from now on it is a call, whatever follows."""
        self.settled = 0
        """How far the text of the last `feed` belongs to the call for certain."""
        self.status = "open"

    def feed(self, text: str, at: int) -> int:
        """Read `text` from `at` on; return where reading stopped: behind the object, at the bad character, or at the end."""
        self.settled = 0
        while self.status == "open" and at < len(text):
            at = self._state(text, at)
        return at

    def take(self) -> str:
        """Return the argument text found since the last call; empty before the call is committed."""
        if not self.committed or self._arguments is None:
            return ""
        taken, self._arguments = self._arguments, ""
        return taken

    # Each state reads some characters and returns the new position; `_bad` ends the scan.

    def _bad(self, at: int) -> int:
        self.status = "bad"
        return at

    def _open(self, text: str, at: int) -> int:
        self._state = self._before_key
        return at + 1

    def _before_key(self, text: str, at: int) -> int:
        if text[at] in _SPACE:
            return at + 1
        if text[at] != '"':
            return self._bad(at)
        self._parts, self._size, self._state = ['"'], 0, self._in_key
        return at + 1

    def _in_key(self, text: str, at: int) -> int:
        end = self._string(text, at)
        if self._size > _MAX_KEY_CHARS:
            return self._bad(end - (self._size - _MAX_KEY_CHARS))
        if self._in_string:
            return end
        key = self._decoded()
        repeated = (key == "name" and self.name is not None) or (key in _ARGUMENT_KEYS and self._arguments is not None)
        if repeated or key not in ("name", *_ARGUMENT_KEYS, *_OTHER_KEYS):
            return self._bad(end - 1)
        self._key, self._state = key or "", self._colon
        return end

    def _colon(self, text: str, at: int) -> int:
        if text[at] in _SPACE:
            return at + 1
        if text[at] != ":":
            return self._bad(at)
        self._state = self._value
        return at + 1

    def _value(self, text: str, at: int) -> int:
        char = text[at]
        if char in _SPACE:
            return at + 1
        if char == '"':
            self._parts, self._size, self._state = [char], 0, self._in_value
            return at + 1
        if char == "[" or self._key == "name" or (char == "{" and self._key not in _ARGUMENT_KEYS):
            return self._bad(at)
        if char == "{":
            self._arguments, self._depth, self._state = "", 0, self._in_arguments
            self._commit(at)
            return at
        self._parts, self._size, self._state = [], 0, self._in_scalar
        return at

    def _in_value(self, text: str, at: int) -> int:
        end = self._string(text, at)
        if self._key not in _ARGUMENT_KEYS and self._size > _MAX_KEY_CHARS:
            return self._bad(end - (self._size - _MAX_KEY_CHARS))
        if self._in_string:
            return end
        value = self._decoded()
        if value is None or (self._key == "name" and (not value or (self._names and value not in self._names))):
            return self._bad(end - 1)
        if self._key == "name":
            self.name = value
        elif self._key in _ARGUMENT_KEYS:
            self._arguments = value.strip() or "{}"
        self._commit(end)
        self._state = self._after_value
        return end

    def _in_scalar(self, text: str, at: int) -> int:
        found = _SCALAR_END.search(text, at)
        end = found.start() if found else len(text)
        self._parts.append(text[at:end])
        self._size += end - at
        if self._size > _MAX_KEY_CHARS:
            return self._bad(end - (self._size - _MAX_KEY_CHARS))
        if found:
            if self._key in _ARGUMENT_KEYS:
                if "".join(self._parts) != "null":
                    return self._bad(end)
                self._arguments = "{}"
                self._commit(end)
            self._state = self._after_value
        return end

    def _in_arguments(self, text: str, at: int) -> int:
        end = self._container(text, at)
        self._arguments = (self._arguments or "") + text[at:end]
        if self.committed:
            self.settled = end
        if self._depth == 0:
            self._state = self._after_value
        return end

    def _after_value(self, text: str, at: int) -> int:
        char = text[at]
        if char in _SPACE:
            return at + 1
        if char == ",":
            self._state = self._before_key
            return at + 1
        if char != "}" or self.name is None:
            return self._bad(at)
        if self._arguments is None:
            self._arguments = "{}"
        self._commit(at + 1)
        self.settled, self.status = at + 1, "closed"
        return at + 1

    def _commit(self, at: int) -> None:
        if not self.committed and self.name is not None and self._arguments is not None:
            self.committed = True
            self.settled = at

    def _string(self, text: str, at: int) -> int:
        """Collect a string up to its closing quote; `_in_string` says whether it is still open. Return the new position."""
        start, self._in_string = at, True
        while at < len(text):
            if self._escaped:
                self._escaped, at = False, at + 1
                continue
            found = _STRING_END.search(text, at)
            if not found:
                at = len(text)
                break
            at = found.end()
            if found[0] == '"':
                self._in_string = False
                break
            self._escaped = True
        self._parts.append(text[start:at])
        self._size += at - start
        return at

    def _decoded(self) -> str | None:
        """The collected string without quotes and escapes; None when it is not JSON."""
        try:
            return _decode_string("".join(self._parts))
        except msgspec.DecodeError:
            return None

    def _container(self, text: str, at: int) -> int:
        """Find the end of an object by counting brackets outside strings; `_depth` is 0 behind its end."""
        while at < len(text):
            if self._escaped:
                self._escaped, at = False, at + 1
                continue
            found = (_STRING_END if self._in_string else _STRUCTURE).search(text, at)
            if not found:
                return len(text)
            at, char = found.end(), found[0]
            if char == '"':
                self._in_string = not self._in_string
            elif char == "\\":
                self._escaped = True
            else:
                self._depth += 1 if char in "{[" else -1
                if self._depth == 0:
                    return at
        return at
