"""The tokens of a vocabulary as a table: their spellings, their kinds, and the bytes that they stand for.

Two families write bytes as text: SentencePiece has U+2581 for a space and `<0x0A>` for a byte, GPT-2 has a letter for each of
the 256 bytes ("byte level"). Source: `llama_vocab::impl::token_to_piece` of llama.cpp; the byte letters are those of GPT-2's
`bytes_to_unicode`.
"""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Literal

SPACE = "\u2581"
MAX_TOKENS = 1_048_576
"""Four times the largest vocabulary that is known."""

BYTE_TOKEN = re.compile(r"<0x[0-9A-F]{2}>")

Family = Literal["spm", "byte level"]


class Kind(IntEnum):
    """What a token is for; the numbers are those of GGUF's `token_type` and of SentencePiece."""

    UNDEFINED = 0
    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


_CONTROL = (Kind.CONTROL, Kind.UNKNOWN)


def byte_letters() -> dict[str, int]:
    """The byte behind each of GPT-2's letters: printable Latin-1 stands for itself, all else for U+0100 and up, in order."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in plain]
    return {chr(byte): byte for byte in plain} | {chr(0x100 + index): byte for index, byte in enumerate(others)}


_BYTE_OF_LETTER = byte_letters()


@dataclass(frozen=True, slots=True)
class TokenTable:
    """Spellings and kinds by token id, as the model's file has them.

    `known_control` holds tokens that count as control tokens although the file calls them something else.
    """

    texts: Sequence[str]
    kinds: Sequence[Kind]
    family: Family
    known_control: frozenset[int] = frozenset()

    def __len__(self) -> int:
        return len(self.texts)

    @property
    def num_used(self) -> int:
        """One more than the last token that is in use: the rest only makes the table as long as the model's matrices are."""
        used = (token for token in reversed(range(len(self.kinds))) if self.kinds[token] not in (Kind.UNUSED, Kind.UNDEFINED))
        return next(used, -1) + 1

    def is_control(self, token: int) -> bool:
        """Whether text can contain the token only when it is parsed as special."""
        return self.kinds[token] in _CONTROL or token in self.known_control

    def control(self) -> dict[str, int]:
        """The ids of all control tokens, by their spelling."""
        marked = {self.texts[token]: token for token, kind in enumerate(self.kinds) if kind in _CONTROL}
        return marked | {self.texts[token]: token for token in sorted(self.known_control)}

    def user_defined(self) -> dict[str, int]:
        """The ids of the tokens that text always contains where it has their spelling."""
        found = [token for token, kind in enumerate(self.kinds) if kind == Kind.USER_DEFINED]
        return {self.texts[token]: token for token in found if token not in self.known_control}

    def mergeable(self) -> dict[str, int]:
        """The ids of the tokens that plain text may become: all but those that the file calls control tokens."""
        return {self.texts[token]: token for token, kind in enumerate(self.kinds) if kind not in _CONTROL}

    def spelled(self, token: int) -> bytes:
        """The bytes of a token, control tokens by their name; none for unused tokens."""
        text, kind = self.texts[token], self.kinds[token]
        if self.is_control(token):
            return text.encode()
        if kind == Kind.NORMAL:
            return text.replace(SPACE, " ").encode() if self.family == "spm" else _from_letters(text)
        if kind == Kind.BYTE:
            return bytes([int(text[3:5], 16)])
        return b"" if kind in (Kind.UNUSED, Kind.UNDEFINED) else text.encode()

    def shown(self, token: int) -> bytes:
        """The bytes that a token adds to visible text: none for control tokens, except the markers of tool calls."""
        spelled = self.spelled(token)
        if self.is_control(token) and b"tool" not in spelled.lower() and b"python_tag" not in spelled:
            return b""
        return spelled

    def digest(self) -> str:
        """SHA-256 over the bytes of every token and which the file calls control tokens, in hexadecimal.

        It does not depend on the kind of file: with the same digest, the same token ids are the same text.
        """
        hashed = hashlib.sha256()
        for token in range(len(self)):
            spelled = self.spelled(token)
            hashed.update(b"%d %d:" % (self.kinds[token] in _CONTROL, len(spelled)))
            hashed.update(spelled)
        return hashed.hexdigest()


def _from_letters(text: str) -> bytes:
    try:
        return bytes([_BYTE_OF_LETTER[letter] for letter in text])
    except KeyError:  # not written in letters: a token that was added as plain text
        return text.encode()
