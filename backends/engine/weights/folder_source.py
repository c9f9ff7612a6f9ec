"""Weights out of a Hugging Face folder of safetensors files, plain or packed in 4 bits."""

from pathlib import Path

import torch

from backends.engine.families import FAMILIES
from backends.engine.names import expected
from backends.engine.shape import ModelShape
from backends.engine.weights.files import OpenFiles
from backends.engine.weights.folder_inventory import folder_inventory
from backends.engine.weights.source import Int4Blocks, Int8Blocks
from backends.engine.weights.tensors import read_tensor
from backends.engine.weights.unpack import PackedMatrix, read_packed


class FolderSource:
    """A `WeightSource` over a folder with `config.json` and safetensors files.

    Raises:
        ModelFileError: see `folder_inventory`; or the files changed since.
    """

    def __init__(self, path: Path) -> None:
        self._inventory = folder_inventory(path)
        self._norm_offset = FAMILIES[self.shape.architecture].norm_offset
        self._files = OpenFiles(self._inventory.files)

    @property
    def shape(self) -> ModelShape:
        """The model's numbers."""
        return self._inventory.shape

    def dense(self, name: str) -> torch.Tensor:
        """See `WeightSource`. Norm weights of a family that stores them less one are float32."""
        packed = self._packed(name)
        if packed is not None:
            return packed.dense()
        (place,) = self._inventory.weights[name].parts.values()
        values = read_tensor(self._files, place)
        if self._norm_offset and name.endswith("norm"):
            return values.to(torch.float32) + self._norm_offset
        return values

    def int4(self, name: str) -> Int4Blocks | None:
        """See `WeightSource`."""
        packed = self._packed(name)
        return None if packed is None else packed.int4()

    def int8(self, name: str) -> Int8Blocks | None:
        """See `WeightSource`. None of the formats that folders have here is one of 8 bits."""
        return None

    def kind(self, name: str) -> str:
        """See `WeightSource`."""
        return self._inventory.weights[name].kind

    def close(self) -> None:
        """See `WeightSource`."""
        self._files.close()

    def _packed(self, name: str) -> PackedMatrix | None:
        stored = self._inventory.weights[name]
        if stored.packing is None:
            return None
        columns = expected(self.shape)[name][1]
        return read_packed(self._files, stored.parts, stored.packing, columns)
