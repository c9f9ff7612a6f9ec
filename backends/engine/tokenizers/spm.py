"""SentencePiece vocabularies of GGUF files, run by the `sentencepiece` library."""

import math

from sentencepiece import SentencePieceProcessor

from backends.engine.tokenizers.errors import TokenizerError, native
from backends.engine.tokenizers.gguf_tokens import GgufTokens
from backends.engine.tokenizers.model_proto import sentencepiece_model
from backends.engine.tokenizers.tokens import Kind

# llama.cpp merges up to user-defined tokens as to any other. SentencePiece knows one unknown token only.
_KIND_INSIDE = {Kind.USER_DEFINED: Kind.NORMAL, Kind.UNKNOWN: Kind.CONTROL, Kind.UNDEFINED: Kind.UNUSED}


def sentencepiece_of(tokens: GgufTokens) -> SentencePieceProcessor:
    """Build a processor that merges text up to all tokens but control tokens.

    Raises:
        TokenizerError: a score is no finite number, there is no unknown token, or not each of the 256 bytes is a token.
    """
    if tokens.unknown < 0:
        raise TokenizerError("the vocabulary has no unknown token")
    wrong = next((i for i, score in enumerate(tokens.scores) if not math.isfinite(score)), None)
    if wrong is not None:
        raise TokenizerError(f"tokenizer.ggml.scores[{wrong}] is {tokens.scores[wrong]}, expected a finite number")
    inside = [_KIND_INSIDE.get(kind, kind) for kind in tokens.table.kinds]
    inside[tokens.unknown] = Kind.UNKNOWN
    model = sentencepiece_model(tokens.table.texts, inside, tokens.scores, adds_space=tokens.adds_space)
    with native("the vocabulary is no SentencePiece model"):
        return SentencePieceProcessor(model_proto=model)
