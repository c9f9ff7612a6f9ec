"""A checked GGUF file as a value: what the model is called, how big it is, what its tokenizer wants, where its tensors lie.

Everything here reads what `read` has already checked; nothing touches the file again. Where a file leaves a value out, the
property says None (or 0 for counts), never a guess.
"""

import math
from array import array
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Literal

from backends.gguf.architectures import EMBEDDING_ARCHITECTURES
from backends.gguf.files import FileIdentity
from backends.gguf.header import SkippedArray, Value
from backends.gguf.layout import TensorInfo
from backends.gguf.limits import SMALL_ARRAY
from backends.gguf.types import FILE_TYPES
from backends.gguf.vocabulary import TOKENS

Pooling = Literal["none", "mean", "cls", "last", "rank"]
_POOLINGS: tuple[Pooling, ...] = ("none", "mean", "cls", "last", "rank")


@dataclass(frozen=True, slots=True)
class Shard:
    """One file of a model: where it is, which file it was when it was checked, and where its tensor data start."""

    path: Path
    identity: FileIdentity
    data_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GgufFile:
    """A model in one file or several. `value_types` names the type of each metadata value (`u32`, `[str]`)."""

    version: int
    alignment: int
    metadata: Mapping[str, Value]
    value_types: Mapping[str, str]
    tensors: tuple[TensorInfo, ...]
    shards: tuple[Shard, ...]

    def without_arrays(self) -> "GgufFile":
        """The same without the content of big arrays, for whoever keeps it long: a large vocabulary takes 80 MB of memory."""
        kept: dict[str, Value] = {}
        for key, value in self.metadata.items():
            big = not isinstance(value, int | float | str) and len(value) > SMALL_ARRAY
            kept[key] = SkippedArray(self.value_types[key].strip("[]"), len(value)) if big else value  # type: ignore[arg-type]
        return replace(self, metadata=MappingProxyType(kept))

    @property
    def path(self) -> Path:
        """The file that was opened: the first of several."""
        return self.shards[0].path

    @property
    def data_offset(self) -> int:
        """Where the tensor data of the first file start, in bytes."""
        return self.shards[0].data_offset

    @property
    def size_bytes(self) -> int:
        """The size of all files together."""
        return sum(shard.identity.size for shard in self.shards)

    @property
    def architecture(self) -> str:
        """`llama`, `gemma3`, ..."""
        return self.text("general.architecture") or ""

    @property
    def name(self) -> str | None:
        """What its authors call it."""
        return self.text("general.name")

    @property
    def parameter_count(self) -> int:
        """Elements of all tensors."""
        return sum(math.prod(tensor.shape) for tensor in self.tensors)

    @property
    def size_label(self) -> str | None:
        """`135M`, `8x7B`, ..."""
        return self.text("general.size_label")

    @property
    def quantization(self) -> str | None:
        """`Q4_K_M`, ...: the recipe that the file names, else the type of most of its bytes."""
        recipe = FILE_TYPES.get(self.integer("general.file_type", -1))
        if recipe is not None or not self.tensors:
            return recipe
        nbytes: Counter[str] = Counter()
        for tensor in self.tensors:
            nbytes[tensor.type.name] += tensor.nbytes
        return nbytes.most_common(1)[0][0]

    @property
    def context_length(self) -> int:
        """Tokens that the model was trained for."""
        return self.hyperparameter("context_length")

    @property
    def block_count(self) -> int:
        """Layers."""
        return self.hyperparameter("block_count")

    @property
    def embedding_length(self) -> int:
        """Width of the residual stream."""
        return self.hyperparameter("embedding_length")

    @property
    def sliding_window(self) -> int:
        """Tokens that layers with local attention see; 0 when all layers see everything."""
        return self.hyperparameter("attention.sliding_window")

    @property
    def head_count(self) -> int | tuple[int, ...]:
        """Query heads, per layer where layers differ."""
        return self._per_layer("attention.head_count", 0)

    @property
    def head_count_kv(self) -> int | tuple[int, ...]:
        """Key/value heads, per layer where layers differ."""
        return self._per_layer("attention.head_count_kv", self.head_count)

    @property
    def head_dim(self) -> int:
        """Width of a key (and query) head."""
        return self.hyperparameter("attention.key_length", self._default_head_dim())

    @property
    def value_dim(self) -> int:
        """Width of a value head."""
        return self.hyperparameter("attention.value_length", self._default_head_dim())

    @property
    def pooling(self) -> Pooling | None:
        """How token vectors become one; `rank` is a reranker's score."""
        kind = self.hyperparameter("pooling_type", -1)
        return None if kind < 0 else _POOLINGS[kind]

    @property
    def is_embedding(self) -> bool:
        """Whether it turns text into vectors instead of more text."""
        return self.pooling in ("mean", "cls", "last") or (
            self.pooling is None and self.architecture in EMBEDDING_ARCHITECTURES
        )

    @property
    def vocab_size(self) -> int:
        """Tokens in the vocabulary."""
        tokens = self.metadata.get(TOKENS)
        if isinstance(tokens, tuple | SkippedArray):
            return len(tokens)
        return self.hyperparameter("vocab_size")

    @property
    def tokenizer_model(self) -> str | None:
        """`gpt2` (byte-level BPE), `llama` (SentencePiece), `bert` (WordPiece), ..."""
        return self.text("tokenizer.ggml.model")

    @property
    def tokenizer_pre(self) -> str | None:
        """How text is cut before BPE: `smollm`, `llama-bpe`, ..."""
        return self.text("tokenizer.ggml.pre")

    @property
    def bos_id(self) -> int | None:
        """Token that begins a text."""
        return self._token_id("bos")

    @property
    def eos_id(self) -> int | None:
        """Token that ends a text."""
        return self._token_id("eos")

    @property
    def eot_id(self) -> int | None:
        """Token that ends a turn, where it is not `eos_id`."""
        return self._token_id("eot")

    @property
    def add_bos(self) -> bool | None:
        """Whether a text is begun with `bos_id`; None leaves it to the kind of tokenizer."""
        value = self.metadata.get("tokenizer.ggml.add_bos_token")
        return value if isinstance(value, bool) else None

    @property
    def chat_template(self) -> str | None:
        """The Jinja source that renders conversations. It came with the file: render it in a sandbox only."""
        return self.text("tokenizer.chat_template")

    def text(self, key: str) -> str | None:
        """The string behind a metadata key; None when there is none, or something else."""
        value = self.metadata.get(key)
        return value if isinstance(value, str) else None

    def integer(self, key: str, default: int) -> int:
        """The integer behind a metadata key; `default` when there is none, or something else."""
        value = self.metadata.get(key)
        return value if isinstance(value, int) and not isinstance(value, bool) else default

    def hyperparameter(self, name: str, default: int = 0) -> int:
        """The integer behind `<architecture>.<name>`."""
        return self.integer(f"{self.architecture}.{name}", default)

    def _token_id(self, name: str) -> int | None:
        key = f"tokenizer.ggml.{name}_token_id"
        return self.integer(key, 0) if key in self.metadata else None

    def _per_layer(self, name: str, default: int | tuple[int, ...]) -> int | tuple[int, ...]:
        value = self.metadata.get(f"{self.architecture}.{name}")
        if value is None:
            return default
        if isinstance(value, int):
            return value
        assert isinstance(value, array)  # checked by `hyperparameters`
        layers = tuple(int(entry) for entry in value)
        return layers[0] if len(set(layers)) == 1 else layers

    def _default_head_dim(self) -> int:
        heads = self.head_count if isinstance(self.head_count, int) else max(self.head_count)
        return self.embedding_length // heads if heads else 0
