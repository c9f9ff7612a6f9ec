"""Text to token ids and back, by the model's own tokenizer. Safe to use from several threads: the vocabulary never changes."""

import ctypes
from typing import Any

from edge.llama.native import lib

_CONTROL = lib.LLAMA_TOKEN_ATTR_CONTROL | lib.LLAMA_TOKEN_ATTR_UNKNOWN


class Vocabulary:
    """Wraps llama.cpp's vocabulary; valid while its model is."""

    def __init__(self, handle: Any) -> None:
        self.handle = handle
        self.size = int(lib.llama_vocab_n_tokens(handle))
        self.bos = int(lib.llama_vocab_bos(handle))
        self.eos = int(lib.llama_vocab_eos(handle))
        self.eot = int(lib.llama_vocab_eot(handle))
        self.adds_bos = bool(lib.llama_vocab_get_add_bos(handle))
        self.end_tokens = frozenset(i for i in self._special_ids() if lib.llama_vocab_is_eog(handle, i))
        self._pieces: dict[int, bytes] = {}

    def _special_ids(self) -> list[int]:
        attributes = lib.llama_vocab_get_attr
        return [i for i in range(self.size) if attributes(self.handle, i) & (_CONTROL | lib.LLAMA_TOKEN_ATTR_USER_DEFINED)]

    def tokenize(self, text: str, *, add_special: bool, parse_special: bool) -> list[int]:
        """Encode text. `parse_special` reads `<|im_start|>` and the like as the tokens they name."""
        data = text.encode()
        room = len(data) + 8
        tokens = (ctypes.c_int32 * room)()
        count = lib.llama_tokenize(self.handle, data, len(data), tokens, room, add_special, parse_special)
        if count < 0:
            room = -count
            tokens = (ctypes.c_int32 * room)()
            count = lib.llama_tokenize(self.handle, data, len(data), tokens, room, add_special, parse_special)
        return list(tokens[:count])

    def piece(self, token: int) -> bytes:
        """The bytes that a token adds to the visible text: none for control tokens, except the markers of tool calls."""
        piece = self._pieces.get(token)
        if piece is None:
            piece = self._render(token, special=False)
            if not piece:
                marker = self._render(token, special=True)
                piece = marker if b"tool" in marker.lower() or b"python_tag" in marker else b""
            self._pieces[token] = piece
        return piece

    def special_piece(self, token: int) -> bytes:
        """The bytes of a token with control tokens spelled out."""
        return self._render(token, special=True)

    def is_control(self, token: int) -> bool:
        """Whether the token is one that text can only contain when it is parsed as special."""
        return bool(lib.llama_vocab_get_attr(self.handle, token) & _CONTROL)

    def control_texts(self) -> list[str]:
        """The spellings of all control tokens: what a user's text must not be read as."""
        return [t for i in range(self.size) if self.is_control(i) and (t := self.special_piece(i).decode("utf-8", "replace"))]

    def detokenize(self, tokens: list[int] | tuple[int, ...]) -> str:
        """Decode token ids as one text, control tokens spelled out."""
        array = (ctypes.c_int32 * len(tokens))(*tokens)
        room = 16 * len(tokens) + 64
        buffer = ctypes.create_string_buffer(room)
        count = lib.llama_detokenize(self.handle, array, len(tokens), buffer, room, False, True)
        if count < 0:
            room = -count
            buffer = ctypes.create_string_buffer(room)
            count = lib.llama_detokenize(self.handle, array, len(tokens), buffer, room, False, True)
        return buffer.raw[:count].decode("utf-8", "replace")

    def _render(self, token: int, *, special: bool) -> bytes:
        buffer = ctypes.create_string_buffer(64)
        count = lib.llama_token_to_piece(self.handle, token, buffer, 64, 0, special)
        if count < 0:
            buffer = ctypes.create_string_buffer(-count)
            count = lib.llama_token_to_piece(self.handle, token, buffer, -count, 0, special)
        return buffer.raw[: max(count, 0)]
