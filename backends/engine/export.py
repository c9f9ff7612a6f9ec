"""Writes a model as a Hugging Face folder, dequantised, so that transformers, vLLM or a quantiser can load it.

The folder appears at its place only when it is complete. Memory: one weight at a time.
"""

import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Literal

import msgspec
import torch

from backends.engine.families import FAMILIES
from backends.engine.names import expected
from backends.engine.shapes.to_config import config_of_shape
from backends.engine.weights.folder_names import folder_name
from backends.engine.weights.safetensors_writer import PlannedTensor, write_safetensors
from backends.engine.weights.source import WeightSource

MAX_SHARD_BYTES = 10**9

ExportDtype = Literal["bf16", "fp16", "fp32"]
_DTYPES = {
    "bf16": ("BF16", "bfloat16", torch.bfloat16),
    "fp16": ("F16", "float16", torch.float16),
    "fp32": ("F32", "float32", torch.float32),
}


class ExportError(Exception):
    """The folder cannot be written. The message is for the user."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportOptions:
    """How to write a model.

    `bos` and `eos` go to the configuration as they are. `write_tokenizer` is called with the folder, before it is at its place.
    `progress` is told the bytes written so far and in all. No file of weights is larger than `shard_bytes`, unless a weight is.
    """

    dtype: ExportDtype = "bf16"
    bos: int | None = None
    eos: tuple[int, ...] = ()
    write_tokenizer: Callable[[Path], None] | None = None
    progress: Callable[[int, int], None] | None = None
    shard_bytes: int = MAX_SHARD_BYTES


def export_folder(source: WeightSource, target: Path, options: ExportOptions | None = None) -> None:
    """Write all weights of a model, its configuration and (where the options say how) its tokenizer.

    Args:
        source: the model; stays open.
        target: the folder to make. It may exist if it is empty.
        options: how.

    Raises:
        ExportError: the target is not empty, cannot be written, or a weight is too large for the dtype. Nothing is left behind.
        ModelFileError: the model is damaged, or its family's configuration cannot describe it.
    """
    options = options or ExportOptions()
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise ExportError(f"{target} is there already and is not an empty folder")
    plan = _plan(source, options)
    config = config_of_shape(source.shape) | _special_tokens(options) | {"torch_dtype": _DTYPES[options.dtype][1]}
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        workshop = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
        try:
            folder = workshop / target.name
            folder.mkdir()  # with the permissions of any new folder, unlike the temporary one around it
            _write_weights(source, folder, plan, options)
            _write_json(folder / "config.json", config)
            _write_json(folder / "generation_config.json", _special_tokens(options))
            if options.write_tokenizer is not None:
                options.write_tokenizer(folder)
            folder.rename(target)
        finally:
            shutil.rmtree(workshop, ignore_errors=True)
    except OSError as error:
        raise ExportError(f"{target} cannot be written: {error.strerror}") from error


Shard = dict[str, PlannedTensor]
"""What a file will hold, by the engine's names of the weights."""


def _plan(source: WeightSource, options: ExportOptions) -> list[Shard]:
    """Distribute the weights over files."""
    dtype, _, torch_dtype = _DTYPES[options.dtype]
    shards: list[Shard] = [{}]
    room = options.shard_bytes
    for weight, dimensions in expected(source.shape).items():
        nbytes = prod(dimensions) * torch_dtype.itemsize
        if nbytes > room and shards[-1]:
            shards.append({})
            room = options.shard_bytes
        name = ".".join(folder_name(weight, post_norms=source.shape.post_norms))
        shards[-1][weight] = PlannedTensor(name, dtype, dimensions, nbytes)
        room -= nbytes
    return shards


def _write_weights(source: WeightSource, folder: Path, plan: Sequence[Shard], options: ExportOptions) -> None:
    total = sum(tensor.nbytes for shard in plan for tensor in shard.values())
    weight_map: dict[str, str] = {}
    done = 0
    for number, shard in enumerate(plan, start=1):
        name = "model.safetensors" if len(plan) == 1 else f"model-{number:05}-of-{len(plan):05}.safetensors"
        weight_map |= {tensor.name: name for tensor in shard.values()}
        values = (_value(source, weight, options) for weight in shard)
        for nbytes in write_safetensors(folder / name, list(shard.values()), values):
            done += nbytes
            if options.progress is not None:
                options.progress(done, total)
    if len(plan) > 1:
        index = {"metadata": {"total_size": total}, "weight_map": weight_map}
        _write_json(folder / "model.safetensors.index.json", index)


def _value(source: WeightSource, weight: str, options: ExportOptions) -> torch.Tensor:
    offset = FAMILIES[source.shape.architecture].norm_offset
    value = source.dense(weight)
    if offset and weight.endswith("norm"):
        value = value.to(torch.float32) - offset
    value = value.to(_DTYPES[options.dtype][2])
    if options.dtype == "fp16" and not torch.isfinite(value).all():
        raise ExportError(f"weight {weight} has numbers above the limit of fp16, 65,504: export as bf16 or fp32")
    return value


def _special_tokens(options: ExportOptions) -> dict[str, object]:
    return {"bos_token_id": options.bos, "eos_token_id": list(options.eos) or None}


def _write_json(path: Path, content: dict[str, object]) -> None:
    path.write_bytes(msgspec.json.format(msgspec.json.encode(content)) + b"\n")
