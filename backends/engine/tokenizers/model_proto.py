"""Writes a SentencePiece model: the few fields of its protobuf that BPE reads, so that no protobuf library is needed.

Source: `sentencepiece_model.proto` of SentencePiece, and the protobuf encoding (tag = field number * 8 + wire type).
"""

import struct
from collections.abc import Sequence

from backends.engine.tokenizers.tokens import Kind

_VARINT, _BYTES = 0, 2
_BPE = 2  # TrainerSpec.ModelType
# Pieces are field 1 of a model; of a piece, the text is field 1, the score field 2 and the kind (a small number) field 3.
_FIRST, _SCORE_AND_KIND = b"\x0a", struct.Struct("<BfBB")
_SCORE_TAG, _KIND_TAG = 0x15, 0x18


def sentencepiece_model(texts: Sequence[str], kinds: Sequence[Kind], scores: Sequence[float], *, adds_space: bool) -> bytes:
    """Serialise a BPE model with byte fallback that leaves text as it is, but for writing spaces as U+2581.

    Args:
        kinds: exactly one is UNKNOWN; UNDEFINED does not occur.
        adds_space: put a space in front of every text.
    """
    pieces: list[bytes] = []
    for text, score, kind in zip(texts, scores, kinds, strict=True):
        spelled = text.encode()
        piece = _FIRST + _number(len(spelled)) + spelled + _SCORE_AND_KIND.pack(_SCORE_TAG, score, _KIND_TAG, kind)
        pieces += (_FIRST, _number(len(piece)), piece)
    unknown = kinds.index(Kind.UNKNOWN)
    # Beginning and end of a text are not SentencePiece's business here: -1 turns them off.
    trainer = _varint(3, _BPE) + _varint(35, 1) + _varint(40, unknown) + b"".join(_varint(field, -1) for field in (41, 42, 43))
    trainer += _bytes(45, texts[unknown].encode())
    normalizer = _bytes(1, b"identity") + _varint(3, adds_space) + _varint(4, 0) + _varint(5, 1)
    return b"".join(pieces) + _bytes(2, trainer) + _bytes(3, normalizer)


def _varint(field: int, value: int) -> bytes:
    return _number(field * 8 + _VARINT) + _number(value)


def _bytes(field: int, value: bytes) -> bytes:
    return _number(field * 8 + _BYTES) + _number(len(value)) + value


def _number(value: int) -> bytes:
    if 0 <= value < 0x80:
        return value.to_bytes()
    value &= 2**64 - 1  # negative numbers take ten bytes
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
