"""The vocabulary of a model of the torch engine: `backends.text.vocabulary.Vocabulary`, with what only this engine asks for."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

from backends.engine.tokenizers.errors import native
from backends.engine.tokenizers.partition import Partition
from backends.engine.tokenizers.tokens import TokenTable
from backends.errors import Rejected


class Encoder(Protocol):
    """Turns text into token ids. May be used from several threads at once."""

    def encode(self, text: str, *, parse_special: bool) -> list[int]:
        """Encode text, without anything around it; control tokens are found in it only with `parse_special`."""
        ...


class PartitionedEncoder:
    """Cuts out special tokens, then tokenises what lies between, each part as a text of its own (as llama.cpp does).

    User-defined tokens are always cut out.
    """

    def __init__(self, table: TokenTable, encode_plain: Callable[[str], list[int]]) -> None:
        """Take a function that encodes text and knows no special token."""
        self._always = Partition(table.user_defined())
        self._special = Partition(table.user_defined() | table.control())
        self._encode_plain = encode_plain

    def encode(self, text: str, *, parse_special: bool) -> list[int]:
        """Encode text."""
        ids: list[int] = []
        for part in (self._special if parse_special else self._always).split(text):
            if isinstance(part, int):
                ids.append(part)
            else:
                ids += self._encode_plain(part)
        return ids


@dataclass(frozen=True, slots=True, kw_only=True)
class Framing:
    """What stands around a text. `bos` and `eos` are -1 where there is none; what is added exists."""

    bos: int
    eos: int
    adds_bos: bool
    adds_eos: bool
    ends: frozenset[int]


class ModelVocabulary:
    """The tokens of one model, read from its own files. It never changes, and may be used from several threads at once."""

    def __init__(self, table: TokenTable, encoder: Encoder, framing: Framing, chat_template: str | None) -> None:
        """Take the parts; nothing is read or built any more."""
        self._table, self._encoder, self._framing = table, encoder, framing
        self.size, self.num_used = len(table), table.num_used
        self.bos, self.eos, self.adds_bos = framing.bos, framing.eos, framing.adds_bos
        self.end_tokens = framing.ends
        self.chat_template = chat_template
        """The model's own Jinja source, or None. It came with the file: render it in a sandbox only."""

    def tokenize(self, text: str, *, add_special: bool, parse_special: bool) -> list[int]:
        """Encode text.

        Args:
            add_special: put `bos` in front and `eos` behind where the model wants them.
            parse_special: read `<|im_start|>` and the like as the tokens they name, not as plain text.

        Raises:
            Rejected: the text holds half of a surrogate pair, or the model's own patterns cannot cope with it.
        """
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise Rejected(f"character {error.start:,} of the text is half of a surrogate pair") from error
        with native("the text cannot be tokenised", Rejected):
            ids = self._encoder.encode(text, parse_special=parse_special)
        if add_special and self.adds_bos:
            ids.insert(0, self.bos)
        if add_special and self._framing.adds_eos:
            ids.append(self.eos)
        return ids

    def piece(self, token: int) -> bytes:
        """The bytes that a token adds to the visible text: none for control tokens, except the markers of tool calls."""
        return self._table.shown(token)

    def special_piece(self, token: int) -> bytes:
        """The bytes of a token with control tokens spelled out."""
        return self._table.spelled(token)

    def is_control(self, token: int) -> bool:
        """Whether the token is one that text can only contain when it is parsed as special."""
        return self._table.is_control(token)

    def control_texts(self) -> list[str]:
        """The spellings of all control tokens: what a user's text must not be read as."""
        return list(self._table.control())

    def detokenize(self, tokens: Iterable[int]) -> str:
        """Decode token ids as one text, control tokens spelled out; what is no UTF-8 becomes U+FFFD.

        The space that tokenising puts in front of a text is taken off again.
        """
        spelled = b"".join(map(self._table.spelled, tokens))
        return (spelled.removeprefix(b" ") if self._adds_space else spelled).decode("utf-8", "replace")

    def digest(self) -> str:
        """SHA-256 over all tokens: equal for the same vocabulary out of different files. Takes 0.2 s for 262,144 tokens."""
        return self._table.digest()

    @cached_property
    def _adds_space(self) -> bool:
        first = self._encoder.encode("a", parse_special=False)[:1]
        return bool(first) and self._table.spelled(first[0]).startswith(b" ")
