"""What a model's files hold and where, known from their headers alone: before any tensor is read or any memory spent.

Importing this loads no torch.
"""

import math
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from backends.engine.errors import ModelFileError
from backends.engine.names import Dimensions, expected
from backends.engine.shape import ModelShape
from backends.engine.weights.files import ModelFile
from backends.engine.weights.packing import Packing
from backends.gguf.errors import shown


@dataclass(frozen=True, slots=True)
class TensorPlace:
    """A tensor of a file: `dtype` is the file's name of the format, `shape` in torch order, `offset` from the file's start."""

    path: Path
    name: str
    dtype: str
    shape: Dimensions
    offset: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class StoredWeight:
    """A weight as its file stores it: one tensor (`weight`), or the parts of a quantised matrix (`qweight`, `scales`, ...)."""

    kind: str
    parts: Mapping[str, TensorPlace]
    packing: Packing | None = None

    @property
    def nbytes(self) -> int:
        """Bytes in the file."""
        return sum(part.nbytes for part in self.parts.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """A whole model: every weight of `backends.engine.names.expected(shape)`, with the dimensions that it must have.

    `recipe` is what the file calls its quantisation (`Q4_K_M`), None where it gives no name.
    """

    shape: ModelShape
    weights: Mapping[str, StoredWeight]
    files: tuple[ModelFile, ...]
    recipe: str | None = None

    @property
    def parameters(self) -> int:
        """Numbers in the model, each counted once however it is packed."""
        return sum(math.prod(dimensions) for dimensions in expected(self.shape).values())

    @property
    def size_bytes(self) -> int:
        """The size of all files together."""
        return sum(file.identity.size for file in self.files)

    @property
    def bytes_by_kind(self) -> Mapping[str, int]:
        """Bytes in the files by storage format, the largest first."""
        sizes: Counter[str] = Counter()
        for weight in self.weights.values():
            sizes[weight.kind] += weight.nbytes
        return dict(sizes.most_common())

    @property
    def quantization(self) -> str:
        """The recipe that the file names, else the format of most of its bytes."""
        return self.recipe or next(iter(self.bytes_by_kind))


def demand_complete(source: Path, missing: Collection[str], extra: Collection[str]) -> None:
    """Raise `ModelFileError` that names the first tensor that a model lacks, or the first that has no place in it."""
    for names, problem in ((missing, "missing"), (extra, "unknown to this architecture")):
        if names:
            count = f"{len(names):,} tensors are" if len(names) > 1 else "a tensor is"
            raise ModelFileError(f"{shown(source.name)}: {count} {problem}, the first is {shown(min(names))}")


def demand_shape(place: TensorPlace, dimensions: Dimensions) -> None:
    """Raise `ModelFileError` unless a tensor has these dimensions."""
    if place.shape != dimensions:
        raise ModelFileError(
            f"{shown(place.path.name)}: tensor {shown(place.name)} has shape {list(place.shape)}, expected {list(dimensions)}"
        )
