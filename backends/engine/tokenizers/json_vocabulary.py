"""The vocabulary of a `tokenizer.json`, run by the `tokenizers` library as transformers runs it.

The file is not trusted, with one exception: its patterns are regular expressions, which can be made to backtrack. Oniguruma
gives up after ten million steps at one place (0.1 s), and the text is rejected; nothing bounds all places of a text.
"""

from collections.abc import Iterator
from threading import Lock
from typing import Any

import msgspec
from tokenizers import Tokenizer, models

from backends.engine.tokenizers.errors import TokenizerError, native
from backends.engine.tokenizers.folder_config import FolderConfig, parsed
from backends.engine.tokenizers.tokens import BYTE_TOKEN, MAX_TOKENS, Family, Kind, TokenTable
from backends.engine.tokenizers.vocabulary import ModelVocabulary

TOKENIZER_FILE = "tokenizer.json"


class _AddedToken(msgspec.Struct):
    id: int
    content: str
    special: bool = False


class _Step(msgspec.Struct):
    """A pre-tokenizer or decoder: one, or a sequence of them."""

    type: str
    pretokenizers: list["_Step"] = []
    decoders: list["_Step"] = []

    def kinds(self) -> Iterator[str]:
        yield self.type
        for step in (*self.pretokenizers, *self.decoders):
            yield from step.kinds()


class _TokenizerFile(msgspec.Struct):
    """What the library does not tell about a `tokenizer.json`."""

    added_tokens: list[_AddedToken] = []
    pre_tokenizer: _Step | None = None
    decoder: _Step | None = None

    def family(self) -> Family:
        steps = [kind for step in (self.pre_tokenizer, self.decoder) if step for kind in step.kinds()]
        return "byte level" if "ByteLevel" in steps else "spm"


class _NativeEncoder:
    """One native tokenizer for both ways of reading special tokens: the way is a setting of the whole, hence the lock."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer, self._lock = tokenizer, Lock()

    def encode(self, text: str, *, parse_special: bool) -> list[int]:
        with self._lock:
            self._tokenizer.encode_special_tokens = not parse_special
            return list(self._tokenizer.encode(text, add_special_tokens=False).ids)


def json_vocabulary(data: bytes, config: FolderConfig) -> ModelVocabulary:
    """Build the vocabulary of a `tokenizer.json`.

    Args:
        data: the file's content.
        config: the files beside it.

    Raises:
        TokenizerError: the file is malformed, of another kind than BPE, or has tokens that the model lacks.
    """
    file = parsed(TOKENIZER_FILE, data, _TokenizerFile)
    limit = config.vocab_size or MAX_TOKENS
    if any(token.id >= limit for token in file.added_tokens):
        data = _without_surplus(data, limit)
    with native(TOKENIZER_FILE):
        tokenizer = Tokenizer.from_buffer(data)
        # A file may still ask for the cutting and filling of its training.
        tokenizer.no_truncation()
        tokenizer.no_padding()
        ids = tokenizer.get_vocab(with_added_tokens=True)
        around = tokenizer.encode("", add_special_tokens=True).ids
    size = max(ids.values(), default=-1) + 1
    if not 0 < size <= limit:
        raise TokenizerError(f"{TOKENIZER_FILE} has {size:,} tokens, expected 1 to {limit:,}")
    table = _table(ids, file, _bpe(tokenizer), max(size, config.vocab_size))
    return ModelVocabulary(table, _NativeEncoder(tokenizer), config.framing(table, around), config.chat_template)


def _without_surplus(data: bytes, limit: int) -> bytes:
    """Take out added tokens that the model has no row for: what Gemma keeps for images has none in its text-only models."""
    tree: dict[str, Any] = msgspec.json.decode(data)
    tree["added_tokens"] = [token for token in tree["added_tokens"] if token["id"] < limit]
    return msgspec.json.encode(tree)


def _bpe(tokenizer: Tokenizer) -> models.BPE:
    model = tokenizer.model
    if not isinstance(model, models.BPE):
        raise TokenizerError(f"{TOKENIZER_FILE}: a model of type {type(model).__name__} is not supported, only BPE is")
    if model.continuing_subword_prefix or model.end_of_word_suffix:
        raise TokenizerError(f"{TOKENIZER_FILE}: tokens that are marked as parts of words are not supported")
    return model


def _table(ids: dict[str, int], file: _TokenizerFile, model: models.BPE, size: int) -> TokenTable:
    family = file.family()
    texts, kinds = [""] * size, [Kind.UNUSED] * size
    for text, token in ids.items():
        texts[token], kinds[token] = text, Kind.NORMAL
    if model.byte_fallback:
        for token in [token for text, token in ids.items() if BYTE_TOKEN.fullmatch(text)]:
            kinds[token] = Kind.BYTE
    if model.unk_token in ids:
        kinds[ids[model.unk_token]] = Kind.UNKNOWN
    for added in file.added_tokens:
        token = ids.get(added.content, -1)
        if token >= 0 and added.special:
            kinds[token] = Kind.CONTROL
        elif token >= 0 and family == "byte level":
            kinds[token] = Kind.USER_DEFINED  # spelled as it is; the other family spells all its tokens alike
    return TokenTable(texts, kinds, family)
