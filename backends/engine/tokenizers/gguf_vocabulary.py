"""The vocabulary of a GGUF file: byte-level BPE or SentencePiece, with llama.cpp's treatment of special tokens."""

from collections.abc import Callable
from pathlib import Path

from backends.engine.tokenizers.bpe import byte_level_bpe
from backends.engine.tokenizers.errors import TokenizerError
from backends.engine.tokenizers.gguf_tokens import GgufTokens, read_gguf_tokens
from backends.engine.tokenizers.pretokenizers import PRE_TOKENIZERS
from backends.engine.tokenizers.spm import sentencepiece_of
from backends.engine.tokenizers.vocabulary import Framing, ModelVocabulary, PartitionedEncoder
from backends.gguf.errors import shown


def gguf_vocabulary(path: Path) -> ModelVocabulary:
    """Read the vocabulary of a GGUF file.

    Raises:
        TokenizerError: the file (named in the message) has no vocabulary that can be used.
    """
    tokens = read_gguf_tokens(path)
    try:
        encode_plain = _encode_plain(tokens)
    except TokenizerError as error:
        raise TokenizerError(f"{shown(path.name)}: {error}") from error.__cause__
    framing = Framing(bos=tokens.bos, eos=tokens.eos, adds_bos=tokens.adds_bos, adds_eos=tokens.adds_eos, ends=tokens.ends)
    return ModelVocabulary(tokens.table, PartitionedEncoder(tokens.table, encode_plain), framing, tokens.chat_template)


def _encode_plain(tokens: GgufTokens) -> Callable[[str], list[int]]:
    if tokens.table.family == "spm":
        return sentencepiece_of(tokens).encode_as_ids
    bpe = byte_level_bpe(tokens.table.mergeable(), tokens.merges, PRE_TOKENIZERS[tokens.pre])
    return lambda text: bpe.encode(text, add_special_tokens=False).ids
