"""What a Hugging Face folder holds, by the engine's names. Importing this loads no torch."""

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from backends.engine.errors import ModelFileError
from backends.engine.names import Dimensions, expected
from backends.engine.shapes.hf_config import HfConfig, parse_config
from backends.engine.shapes.of_config import shape_of_config
from backends.engine.weights.files import read_small
from backends.engine.weights.folder_files import cache_root, read_tensor_tables
from backends.engine.weights.folder_names import folder_name
from backends.engine.weights.inventory import Inventory, StoredWeight, TensorPlace, demand_complete, demand_shape
from backends.engine.weights.packing import WORD, Packing, PartSpec, parse_packing
from backends.gguf.errors import shown

MAX_CONFIG_BYTES = 4 * 1024**2
FLOATS = ("F32", "F16", "BF16")
"""The storage formats of weights that are not packed."""

_IDLE = re.compile(r"model\.layers\.\d+\.self_attn\.rotary_emb\.inv_freq")  # old checkpoints; computed from the base anyway


def folder_inventory(folder: Path) -> Inventory:
    """Read `config.json` and check the headers of all weight files of a folder.

    A model that says its head is the embedding, but brings a head, has one of its own (as in transformers 5).

    Raises:
        ModelFileError: a file is missing, malformed or truncated, the architecture or a storage format is not implemented, or a
            tensor is missing, unknown or of the wrong shape.
    """
    config = _read_config(folder)
    shape = shape_of_config(config)
    packing = parse_packing(config.quantization_config)
    files, tensors = read_tensor_tables(folder)
    if shape.tied and any(name.startswith("lm_head.") for name in tensors):
        shape = replace(shape, tied=False)
    catalog = _Catalog(tensors, packing, expected(shape))
    weights = {weight: catalog.find(weight, *folder_name(weight, post_norms=shape.post_norms)) for weight in expected(shape)}
    extra = {name for name in tensors.keys() - catalog.used if not _IDLE.fullmatch(name)}
    demand_complete(folder, catalog.missing, extra)
    return Inventory(shape=shape, weights=weights, files=files)


def _read_config(folder: Path) -> HfConfig:
    path = folder / "config.json"
    if not path.exists():
        # The most telling reason first: a folder of pickle or GGUF files often has no config.json either.
        read_tensor_tables(folder)
        raise ModelFileError(f"{shown(folder.name)}: there is no config.json in this folder")
    return parse_config(read_small(path, MAX_CONFIG_BYTES, cache_root(folder)))


class _Catalog:
    """Finds weights among the tensors of a folder, and remembers which tensors were used and which are missing."""

    def __init__(self, tensors: Mapping[str, TensorPlace], packing: Packing | None, weights: Mapping[str, Dimensions]) -> None:
        self.used: set[str] = set()
        self.missing: set[str] = set()
        self._tensors = tensors
        self._packing = packing
        self._weights = weights

    def find(self, weight: str, module: str, parameter: str) -> StoredWeight:
        """The tensors of a weight, `module.parameter` of the folder, after checking their shapes and formats."""
        dimensions, packing = self._weights[weight], self._packing
        is_matrix = parameter == "weight" and len(dimensions) == 2
        if packing and is_matrix and f"{module}.{packing.main}" in self._tensors:
            outputs, inputs = dimensions
            if outputs % WORD or inputs % WORD:
                raise ModelFileError(f"tensor {shown(module)} of {outputs} by {inputs} cannot be packed in words of {WORD}")
            specs = packing.parts(outputs, inputs)
            # Some writers give every packed matrix a bias of zeros; whether it is one shows when the matrix is read.
            if f"{weight}.bias" not in self._weights:
                specs |= {"bias": PartSpec((outputs,), FLOATS, required=False)}
            return StoredWeight(packing.label, self._parts(module, specs), packing)
        parts = self._parts(module, {parameter: PartSpec(dimensions, FLOATS)})
        return StoredWeight(parts[parameter].dtype if parts else "", parts)

    def _parts(self, module: str, specs: Mapping[str, PartSpec]) -> dict[str, TensorPlace]:
        parts = {}
        for part, spec in specs.items():
            name = f"{module}.{part}"
            place = self._tensors.get(name)
            if place is not None:
                self.used.add(name)
                demand_shape(place, spec.shape)
                if place.dtype not in spec.dtypes:
                    raise ModelFileError(
                        f"{shown(place.path.name)}: tensor {shown(name)} is {place.dtype}, expected {' or '.join(spec.dtypes)}"
                    )
                parts[part] = place
            elif spec.required:
                self.missing.add(name)
        return parts
