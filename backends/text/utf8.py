"""Token bytes to text, one sequence at a time.

A token may hold part of a character (byte-level BPE, byte-fallback tokens), so bytes are decoded as a stream: only an
incomplete last character is held back, and bytes that can never become a character turn into U+FFFD. Knows no token ids and no
vocabulary.
Source: Unicode 16, section 3.9, "U+FFFD substitution of maximal subparts", which is what CPython's decoder does.
"""

import codecs

_new_decoder = codecs.getincrementaldecoder("utf-8")


class Utf8Stream:
    """Decodes the pieces of one sequence. The outputs together equal `b"".join(pieces).decode("utf-8", "replace")`."""

    __slots__ = ("_decode", "_state", "pending")

    def __init__(self) -> None:
        decoder = _new_decoder("replace")
        self._decode = decoder.decode
        self._state = decoder.getstate
        self.pending = False
        """Whether bytes of an incomplete character are held back; it becomes exactly one more character."""

    def push(self, piece: bytes) -> str:
        """Take the bytes of one token; return the text that is complete now, which may be empty."""
        if not self.pending and piece.isascii():
            return piece.decode("ascii")
        text = self._decode(piece)
        self.pending = bool(self._state()[0])
        return text

    def flush(self) -> str:
        """End the text: held-back bytes come out as U+FFFD."""
        self.pending = False
        return self._decode(b"", True)
