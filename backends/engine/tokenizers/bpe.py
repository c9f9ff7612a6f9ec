"""Byte-level BPE from tokens and merges, on top of the `tokenizers` library."""

import re
from collections.abc import Mapping, Sequence

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

from backends.engine.tokenizers.errors import native
from backends.engine.tokenizers.pretokenizers import PreTokenizer
from backends.engine.tokenizers.tokens import byte_letters


def byte_level_bpe(ids: Mapping[str, int], merges: Sequence[tuple[str, str]], pre: PreTokenizer) -> Tokenizer:
    """Build a tokenizer that knows no special tokens.

    Args:
        ids: the tokens that merging may reach, by their spelling in byte letters.
        merges: pairs of tokens, best first.

    Raises:
        TokenizerError: a merge makes or needs something that is no token.
    """
    with native("tokenizer.ggml.merges do not fit the tokens"):
        tokenizer = Tokenizer(models.BPE(vocab=dict(ids), merges=list(merges), ignore_merges=pre.ignores_merges))
    steps: list[pre_tokenizers.PreTokenizer] = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in pre.patterns]
    steps.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False))
    missing = "".join(letter for letter in byte_letters() if letter not in ids)
    if missing:
        # A byte that is no token is lost; without this cut, what stands around it would grow together.
        steps.append(pre_tokenizers.Split(Regex(f"[{re.escape(missing)}]"), "removed"))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(steps)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer
