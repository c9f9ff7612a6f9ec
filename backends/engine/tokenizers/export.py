"""Writes the tokenizer of a model as `tokenizer.json` and `tokenizer_config.json`, as transformers and vLLM load them.

A SentencePiece vocabulary becomes BPE with merges, as transformers itself converts it. Where two pieces have the same score,
merges need an order that SentencePiece does not have: there, and only there, the two may cut a text differently.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path

import msgspec
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, processors

from backends.engine.tokenizers.bpe import byte_level_bpe
from backends.engine.tokenizers.errors import TokenizerError, native
from backends.engine.tokenizers.gguf_tokens import GgufTokens, read_gguf_tokens
from backends.engine.tokenizers.json_vocabulary import TOKENIZER_FILE
from backends.engine.tokenizers.pretokenizers import PRE_TOKENIZERS
from backends.engine.tokenizers.sentencepiece_vocabulary import MODEL_FILE
from backends.engine.tokenizers.tokens import SPACE, Kind, TokenTable
from backends.gguf.errors import shown

_CONFIG_FILE = "tokenizer_config.json"
_TOKENIZER_FILES = (
    *(TOKENIZER_FILE, MODEL_FILE, _CONFIG_FILE),
    *("chat_template.jinja", "special_tokens_map.json", "added_tokens.json", "vocab.json", "merges.txt"),
)


def write_tokenizer(source: Path, folder: Path) -> None:
    """Write the tokenizer of the model at `source` into an existing folder; that of a folder is copied.

    What ends an answer is not written: that belongs to `generation_config.json` (see `Vocabulary.end_tokens`).

    Raises:
        TokenizerError: the source is not sound, or has no tokenizer.
        OSError: the folder cannot be written.
    """
    if source.is_dir():
        _copy(source, folder)
        return
    tokens = read_gguf_tokens(source)
    with native(f"{shown(source.name)}: the tokenizer cannot be exported"):
        text = _tokenizer(tokens).to_str()
    (folder / TOKENIZER_FILE).write_text(text, "utf-8")
    (folder / _CONFIG_FILE).write_bytes(msgspec.json.format(msgspec.json.encode(_config(tokens))) + b"\n")


def _copy(source: Path, folder: Path) -> None:
    names = [name for name in _TOKENIZER_FILES if (source / name).is_file()]
    if TOKENIZER_FILE not in names and MODEL_FILE not in names:
        raise TokenizerError(f"{shown(source.name)}: the folder has neither {TOKENIZER_FILE} nor {MODEL_FILE}")
    for name in names:
        shutil.copyfile(source / name, folder / name)


def _config(tokens: GgufTokens) -> dict[str, object]:
    named = {"bos_token": tokens.bos, "eos_token": tokens.eos, "unk_token": tokens.unknown}
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        **{name: tokens.table.texts[token] if token >= 0 else None for name, token in named.items()},
        "add_bos_token": tokens.adds_bos,
        "add_eos_token": tokens.adds_eos,
        "clean_up_tokenization_spaces": False,
        **({} if tokens.chat_template is None else {"chat_template": tokens.chat_template}),
    }


def _tokenizer(tokens: GgufTokens) -> Tokenizer:
    texts, kinds = tokens.table.texts, tokens.table.kinds
    tokenizer = _byte_level(tokens) if tokens.table.family == "byte level" else _spm(tokens)
    tokenizer.add_tokens(
        [
            AddedToken(text, special=kind != Kind.USER_DEFINED, normalized=False)
            for text, kind in zip(texts, kinds, strict=True)
            if kind in (Kind.CONTROL, Kind.UNKNOWN, Kind.USER_DEFINED)
        ]
    )
    before = [(texts[tokens.bos], tokens.bos)] if tokens.adds_bos else []
    behind = [(texts[tokens.eos], tokens.eos)] if tokens.adds_eos else []
    if before or behind:
        single = [*(text for text, _ in before), "$A", *(text for text, _ in behind)]
        tokenizer.post_processor = processors.TemplateProcessing(
            single=single, pair=[*single, "$B:1"], special_tokens=list(dict(before + behind).items())
        )
    return tokenizer


def _byte_level(tokens: GgufTokens) -> Tokenizer:
    # With the control tokens, because the file format numbers what is not among these anew.
    ids = {text: token for token, text in enumerate(tokens.table.texts)}
    return byte_level_bpe(ids, tokens.merges, PRE_TOKENIZERS[tokens.pre])


def _spm(tokens: GgufTokens) -> Tokenizer:
    ids = {text: token for token, text in enumerate(tokens.table.texts)}
    merges = [pair for _, pair in sorted(_merges(tokens), key=lambda merge: -merge[0])]
    unknown = tokens.table.texts[tokens.unknown] if tokens.unknown >= 0 else None
    tokenizer = Tokenizer(models.BPE(vocab=ids, merges=merges, unk_token=unknown, fuse_unk=True, byte_fallback=True))
    spaces = normalizers.Replace(" ", SPACE)
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend(SPACE), spaces]) if tokens.adds_space else spaces
    steps = [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    tokenizer.decoder = decoders.Sequence([*steps, decoders.Strip(" ", 1, 0)] if tokens.adds_space else steps)
    return tokenizer


def _merges(tokens: GgufTokens) -> Iterator[tuple[float, tuple[str, str]]]:
    """All pairs of tokens that make a token, with the score of what they make."""
    table: TokenTable = tokens.table
    mergeable = {text for text, kind in zip(table.texts, table.kinds, strict=True) if kind in (Kind.NORMAL, Kind.USER_DEFINED)}
    for text, score in zip(table.texts, tokens.scores, strict=True):
        if text in mergeable:
            for cut in range(1, len(text)):
                left, right = text[:cut], text[cut:]
                if left in mergeable and right in mergeable:
                    yield score, (left, right)
