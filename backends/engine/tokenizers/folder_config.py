"""What the JSON files of a Hugging Face folder say about a tokenizer, beside the tokenizer itself.

Source: `PreTrainedTokenizerBase` and `GenerationConfig` of transformers. The files are not trusted: their size is bounded,
their fields have types, and nothing but regular files is read.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec

from backends.engine.tokenizers.errors import TokenizerError
from backends.engine.tokenizers.spellings import end_tokens, fill_in_tokens
from backends.engine.tokenizers.tokens import MAX_TOKENS, TokenTable
from backends.engine.tokenizers.vocabulary import Framing
from backends.engine.weights.files import read_small
from backends.engine.weights.folder_files import cache_root
from backends.gguf.errors import shown

_MAX_CONFIG_BYTES = 16 * 1024**2
_TEMPLATE_FILE = "chat_template.jinja"

T = TypeVar("T")


class AddedToken(msgspec.Struct):
    """A token beside the model's own. A special one is a control token."""

    content: str
    special: bool = False


class NamedTemplate(msgspec.Struct):
    """One of several chat templates."""

    name: str
    template: str


class TokenizerConfig(msgspec.Struct):
    """`tokenizer_config.json`. A token that is null does not exist; one that is left out may be in `config.json`."""

    bos_token: str | AddedToken | msgspec.UnsetType | None = msgspec.UNSET
    eos_token: str | AddedToken | msgspec.UnsetType | None = msgspec.UNSET
    add_bos_token: bool | None = None
    add_eos_token: bool | None = None
    chat_template: str | list[NamedTemplate] | None = None
    added_tokens_decoder: dict[int, AddedToken] = {}


class ModelConfig(msgspec.Struct):
    """`config.json` or `generation_config.json`; models that also see images keep the language model's in `text_config`."""

    bos_token_id: int | None = None
    eos_token_id: int | list[int] | None = None
    vocab_size: int | None = None
    text_config: "ModelConfig | None" = None


@dataclass(frozen=True, slots=True)
class FolderConfig:
    """The files of a folder that say something about its tokenizer; those that are missing say nothing."""

    tokenizer: TokenizerConfig
    model: ModelConfig
    generation: ModelConfig
    chat_template: str | None

    @property
    def vocab_size(self) -> int:
        """Rows of the model's embedding, 0 where `config.json` does not say. Raises `TokenizerError` above the limit."""
        size = self.model.vocab_size or 0
        if not 0 <= size <= MAX_TOKENS:
            raise TokenizerError(f"config.json: vocab_size is {size:,}, expected at most {MAX_TOKENS:,}")
        return size

    def framing(self, table: TokenTable, around: Sequence[int], bos: int = -1, eos: int = -1) -> Framing:
        """Settle which tokens stand around a text.

        Args:
            around: what the tokenizer itself puts around an empty text, unless these files say otherwise.
            bos, eos: what the tokenizer itself calls so; -1 where it says nothing.

        Raises:
            TokenizerError: a token that a file names does not exist.
        """
        eos_ids = [*_listed(self.generation.eos_token_id), *_listed(self.model.eos_token_id)]
        bos = _token("bos_token", self.tokenizer.bos_token, table, _listed(self.model.bos_token_id), bos)
        eos = _token("eos_token", self.tokenizer.eos_token, table, eos_ids, eos)
        wrong = next((token for token in (*eos_ids, bos, eos) if not -1 <= token < len(table)), None)
        if wrong is not None:
            raise TokenizerError(f"token id {wrong:,} is outside the vocabulary of {len(table):,} tokens")
        has_bos = bos in around[:1]
        has_eos = eos in around[has_bos:]
        adds_bos = has_bos if self.tokenizer.add_bos_token is None else self.tokenizer.add_bos_token
        adds_eos = has_eos if self.tokenizer.add_eos_token is None else self.tokenizer.add_eos_token
        control = table.control()
        ends = end_tokens(control, fill_in_tokens(control, {}), [token for token in (*eos_ids, eos) if token >= 0])
        return Framing(bos=bos, eos=eos, adds_bos=adds_bos and bos >= 0, adds_eos=adds_eos and eos >= 0, ends=ends)


def read_folder_config(folder: Path) -> FolderConfig:
    """Read what there is. Raises `ModelFileError` for a file that is malformed, too big or no regular file of the folder."""
    tokenizer = _read(folder, "tokenizer_config.json", TokenizerConfig)
    model = _read(folder, "config.json", ModelConfig)
    template = read_file(folder, _TEMPLATE_FILE, _MAX_CONFIG_BYTES)
    try:
        chat_template = _template(tokenizer) if template is None else template.decode()
    except UnicodeDecodeError:
        raise TokenizerError(f"{_TEMPLATE_FILE} is not valid UTF-8") from None
    generation = _read(folder, "generation_config.json", ModelConfig)
    return FolderConfig(tokenizer, model.text_config or model, generation, chat_template)


def read_file(folder: Path, name: str, limit: int) -> bytes | None:
    """Read a whole file of at most `limit` bytes; None when there is none. Raises `ModelFileError` otherwise."""
    path = folder / name
    return read_small(path, limit, cache_root(folder)) if path.exists() else None


def parsed(name: str, data: bytes, kind: type[T]) -> T:
    """Decode JSON. Raises `TokenizerError` that names the file and the field."""
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise TokenizerError(f"{name}: {error}") from error


def _read(folder: Path, name: str, kind: type[T]) -> T:
    data = read_file(folder, name, _MAX_CONFIG_BYTES)
    return kind() if data is None else parsed(name, data, kind)


def _template(config: TokenizerConfig) -> str | None:
    template = config.chat_template
    if not isinstance(template, list):
        return template
    by_name = {named.name: named.template for named in template}
    return by_name.get("default", next(iter(by_name.values()), None))


def _token(
    what: str, named: str | AddedToken | msgspec.UnsetType | None, table: TokenTable, listed: list[int], default: int
) -> int:
    if named is msgspec.UNSET:
        return listed[0] if listed else default
    if named is None:
        return -1
    text = named.content if isinstance(named, AddedToken) else str(named)
    if text not in table.texts:
        raise TokenizerError(f"tokenizer_config.json: {what} is {shown(text)}, which is no token of the vocabulary")
    return table.texts.index(text)


def _listed(tokens: int | list[int] | None) -> list[int]:
    if tokens is None:
        return []
    return tokens if isinstance(tokens, list) else [tokens]
