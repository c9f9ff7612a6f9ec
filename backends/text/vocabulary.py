"""What the translation between text and tokens needs of a tokenizer, whichever engine brings it."""

from typing import Protocol


class Vocabulary(Protocol):
    """The tokens of one model. It never changes, and may be used from several threads at once."""

    @property
    def size(self) -> int:
        """How many token ids there are; they are 0 to `size` - 1."""
        ...

    @property
    def bos(self) -> int:
        """The token that begins a text, or -1 where the model has none."""
        ...

    @property
    def eos(self) -> int:
        """The token that ends a text, or -1 where the model has none."""
        ...

    @property
    def adds_bos(self) -> bool:
        """Whether the model expects `bos` in front of every prompt."""
        ...

    @property
    def end_tokens(self) -> frozenset[int]:
        """The tokens after which an answer is over: end of text, end of turn."""
        ...

    def tokenize(self, text: str, *, add_special: bool, parse_special: bool) -> list[int]:
        """Encode text.

        Args:
            add_special: put the model's own special tokens around it, such as `bos`.
            parse_special: read `<|im_start|>` and the like as the tokens they name, not as plain text.
        """
        ...

    def piece(self, token: int) -> bytes:
        """The bytes that a token adds to the visible text: none for control tokens, except the markers of tool calls."""
        ...

    def special_piece(self, token: int) -> bytes:
        """The bytes of a token with control tokens spelled out."""
        ...

    def is_control(self, token: int) -> bool:
        """Whether the token is one that text can only contain when it is parsed as special."""
        ...

    def control_texts(self) -> list[str]:
        """The spellings of all control tokens: what a user's text must not be read as."""
        ...

    def detokenize(self, tokens: list[int] | tuple[int, ...]) -> str:
        """Decode token ids as one text, control tokens spelled out; what is no UTF-8 becomes U+FFFD."""
        ...
