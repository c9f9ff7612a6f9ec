"""Checks of the tokenizer arrays: their types, their lengths against each other, and texts that native tokenizers choke on.

Source: `llama_vocab::impl::load` of llama.cpp. It keeps tokens in a map and asserts that none was lost, so a duplicate ends the
process; it reads the two digits of a byte token without looking, and reads strings up to their first zero byte.
"""

import re
from array import array

from backends.gguf.errors import GgufError, shown
from backends.gguf.fields import demand_type, integer, length, text
from backends.gguf.header import Header

TOKENS = "tokenizer.ggml.tokens"
_TOKEN_TYPES = "tokenizer.ggml.token_type"
_BYTE = 6  # LLAMA_TOKEN_TYPE_BYTE
_BYTE_TOKEN = re.compile(r"<0x[0-9A-F]{2}>")
_TOKEN_ID_KEY = re.compile(r"tokenizer\.ggml\.\w+_token_id")
_MAX_TOKEN_CHARACTERS = 65_535

_ARRAY_TYPES = {
    TOKENS: ("[str]",),
    _TOKEN_TYPES: ("[i32]",),
    "tokenizer.ggml.scores": ("[f32]", "[i32]"),
    "tokenizer.ggml.merges": ("[str]",),
    "tokenizer.ggml.suppress_tokens": ("[i32]",),
    "tokenizer.ggml.precompiled_charsmap": ("[u8]", "[i8]"),
}
_FLAGS = ("add_bos_token", "add_eos_token", "add_sep_token", "add_space_prefix", "remove_extra_whitespaces")
_TEXTS = ("tokenizer.ggml.model", "tokenizer.ggml.pre", "tokenizer.chat_template")


def check_vocabulary(header: Header) -> None:
    """Check everything below `tokenizer.`; texts of tokens only where the header holds them (see `SkippedArray`).

    Raises:
        GgufError: an array has another type or length than it must have, a token id is out of range, a token text is malformed
            or occurs twice.
    """
    for key, allowed in _ARRAY_TYPES.items():
        demand_type(header, key, *allowed)
    for name in _FLAGS:
        demand_type(header, f"tokenizer.ggml.{name}", "bool")
    for key in _TEXTS:
        text(header, key)
    num_tokens = length(header, TOKENS)
    for key in (_TOKEN_TYPES, "tokenizer.ggml.scores"):
        count = length(header, key)
        if count is not None and count != num_tokens:
            raise GgufError(f"{key} has {count:,} entries, but there are {num_tokens or 0:,} tokens")
    if num_tokens is None:
        return
    for key in header.metadata:
        if _TOKEN_ID_KEY.fullmatch(key):
            integer(header, key, 0, num_tokens - 1)
    tokens, types = header.metadata[TOKENS], header.metadata.get(_TOKEN_TYPES)
    if isinstance(tokens, tuple):
        _check_texts(tokens)
        if isinstance(types, array):
            _check_byte_tokens(tokens, types)


def _check_texts(tokens: tuple[str, ...]) -> None:
    if max(map(len, tokens), default=0) > _MAX_TOKEN_CHARACTERS:
        index, size = max(enumerate(map(len, tokens)), key=lambda pair: pair[1])
        raise GgufError(f"{TOKENS}[{index}] has {size:,} characters, above the limit of {_MAX_TOKEN_CHARACTERS:,}")
    together = "".join(tokens)  # most vocabularies are settled by searching this, instead of every token
    for index, token in enumerate(tokens if "<0x" in together else ()):
        if token.startswith("<0x") and token.endswith(">") and not _BYTE_TOKEN.fullmatch(token):
            raise GgufError(f"{TOKENS}[{index}] is {shown(token)}, expected two hexadecimal digits as in '<0x0A>'")
    distinct = set(tokens)
    if len(distinct) != len(tokens) or "" in distinct or "\0" in together:
        _demand_distinct(tokens)


def _demand_distinct(tokens: tuple[str, ...]) -> None:
    first: dict[str, int] = {}
    for index, token in enumerate(tokens):
        seen = token.partition("\0")[0] or f"[EMPTY_{index}]"  # what native code makes of it
        if first.setdefault(seen, index) != index:
            raise GgufError(f"{TOKENS}[{index}] is {shown(token)}, the same as token {first[seen]:,}")


def _check_byte_tokens(tokens: tuple[str, ...], types: "array[int] | array[float]") -> None:
    if not types.count(_BYTE):
        return
    for index, (token, kind) in enumerate(zip(tokens, types, strict=True)):
        if kind == _BYTE and not _BYTE_TOKEN.fullmatch(token):
            raise GgufError(f"{TOKENS}[{index}] is the byte token {shown(token)}, expected the form '<0x0A>'")
