"""Answers that are no streams, in our vocabulary: vectors and token lists."""

import binascii
import math
import sys
from array import array
from base64 import b64decode
from typing import Any

from backends.remote.errors import protocol_error
from backends.remote.json_fields import dicts, read_object, text
from backends.remote.meaning import read_usage
from backends.types import Embeddings, TokenList, Usage

_UNIT_TOLERANCE = 1e-3
_FLOAT_BYTES = 4


def read_embeddings(body: bytes, inputs: int) -> Embeddings:
    """Vectors in the order of the inputs, each of length 1; some servers do not normalise.

    Raises:
        Failed: there is not one vector for each of the inputs.
    """
    answer = read_object(body, "answer")
    found: dict[int, bytes] = {}
    for position, item in enumerate(dicts(answer.get("data"))):
        index = item.get("index")
        found[index if isinstance(index, int) else position] = _vector(item.get("embedding"))
    if sorted(found) != list(range(inputs)):
        raise protocol_error(f"The upstream server answered {len(found)} vectors for {inputs} inputs.")
    usage = read_usage(answer.get("usage")) or Usage()
    return Embeddings(tuple(found[index] for index in range(inputs)), Usage(usage.prompt_tokens))


def _vector(value: Any) -> bytes:
    """Little-endian float32 of length 1, from numbers or base64."""
    try:
        data = b64decode(value, validate=True) if isinstance(value, str) else array("f", value).tobytes()
        vector = array("f", data)
    except (binascii.Error, TypeError, ValueError, OverflowError):
        raise protocol_error("The upstream server sent a vector that is neither numbers nor base64.") from None
    if isinstance(value, str) and sys.byteorder == "big":
        vector.byteswap()
    length = math.hypot(*vector)
    if length and math.isfinite(length) and abs(length - 1.0) > _UNIT_TOLERANCE:
        vector = array("f", [number / length for number in vector])
    if sys.byteorder == "big":
        vector.byteswap()
    return vector.tobytes()


def read_tokens(body: bytes) -> TokenList:
    """Token ids with their bytes: exact from llama-server and Baton, as the tokenizer writes them from vLLM, else empty.

    Raises:
        Failed: there is no list of tokens.
    """
    answer = read_object(body, "answer")
    tokens, texts = answer.get("tokens"), answer.get("token_strs")
    if not isinstance(tokens, list):
        raise protocol_error("The upstream server answered without a list of tokens.")
    ids: list[int] = []
    pieces: list[bytes] = []
    for position, token in enumerate(tokens):
        piece: Any = texts[position] if isinstance(texts, list) and position < len(texts) else ""
        number = token
        if isinstance(token, dict):
            number, piece = token.get("id"), token.get("piece")
        if not isinstance(number, int):
            raise protocol_error("The upstream server answered with a token that is no number.")
        ids.append(number)
        pieces.append(_piece(piece))
    return TokenList(tuple(ids), tuple(pieces))


def _piece(value: Any) -> bytes:
    if isinstance(value, list) and all(isinstance(byte, int) and 0 <= byte < 256 for byte in value):
        return bytes(value)
    return text(value).encode()


def read_text(body: bytes) -> str:
    """The text of a detokenize answer: vLLM's `prompt` or llama-server's `content`."""
    answer = read_object(body, "answer")
    return text(answer.get("prompt")) or text(answer.get("content"))
