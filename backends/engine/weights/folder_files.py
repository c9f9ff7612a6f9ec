"""Which files of a Hugging Face folder hold the weights, and which tensors they hold. Importing this loads no torch.

Names in the index are those of files directly in the folder; links may point to the cache that the folder is a snapshot of
(Hugging Face keeps `snapshots/<revision>/` as links into `blobs/`), but not elsewhere.
"""

import re
from collections import defaultdict
from collections.abc import Set
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from backends.engine.errors import ModelFileError
from backends.engine.weights.files import ModelFile, read_small
from backends.engine.weights.inventory import TensorPlace
from backends.engine.weights.safetensors_header import read_header
from backends.gguf.errors import shown

MAX_INDEX_BYTES = 32 * 1024**2
MAX_SHARDS = 1_000

_WHOLE, _INDEX = "model.safetensors", "model.safetensors.index.json"
_SHARD_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.\-]{0,200}\.safetensors")
_PICKLES = (".bin", ".pt", ".pth", ".pkl", ".ckpt")


class _Index(Struct):
    weight_map: Annotated[dict[str, str], Meta(min_length=1)]


def cache_root(folder: Path) -> Path:
    """The folder that everything in `folder` must really lie in."""
    folder = folder.resolve()
    return folder.parent.parent if folder.parent.name == "snapshots" else folder


def read_tensor_tables(folder: Path) -> tuple[tuple[ModelFile, ...], dict[str, TensorPlace]]:
    """Check the headers of all weight files of a folder, and return the files and the tensors by name.

    Raises:
        ModelFileError: there are no safetensors files, or one is missing, malformed or outside the folder; or the index and the
            files do not say the same.
    """
    root = cache_root(folder)
    index = folder / _INDEX
    if not index.exists():
        if not (folder / _WHOLE).exists():
            raise _nothing_to_read(folder)
        file, places = read_header(folder / _WHOLE, root)
        return (file,), {place.name: place for place in places}
    files, tensors = [], dict[str, TensorPlace]()
    for shard, promised in sorted(_read_index(index, root).items()):
        file, places = read_header(folder / shard, root)
        files.append(file)
        found = {place.name: place for place in places}
        _demand_same(shard, promised, found.keys())
        tensors |= found
    return tuple(files), tensors


def _read_index(index: Path, root: Path) -> dict[str, set[str]]:
    """The tensors that each file should hold."""
    try:
        weight_map = msgspec.json.decode(read_small(index, MAX_INDEX_BYTES, root), type=_Index).weight_map
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise ModelFileError(f"{_INDEX}: {error}") from error
    shards = defaultdict[str, set[str]](set)
    for name, shard in weight_map.items():
        shards[shard].add(name)
    if len(shards) > MAX_SHARDS:
        raise ModelFileError(f"{_INDEX}: {len(shards):,} files are above the limit of {MAX_SHARDS:,}")
    for shard in shards:
        if not _SHARD_NAME.fullmatch(shard):
            raise ModelFileError(f"{_INDEX}: {shown(shard)} is not the name of a safetensors file in the folder")
    return shards


def _demand_same(shard: str, promised: Set[str], found: Set[str]) -> None:
    if promised - found:
        raise ModelFileError(f"{shard}: tensor {shown(min(promised - found))} is missing, although {_INDEX} says it is there")
    if found - promised:
        raise ModelFileError(f"{shard}: tensor {shown(min(found - promised))} is here, but {_INDEX} does not say so")


def _nothing_to_read(folder: Path) -> ModelFileError:
    names = sorted(entry.name for entry in folder.iterdir())
    pickles = [name for name in names if name.endswith(_PICKLES)]
    ggufs = [name for name in names if name.endswith(".gguf")]
    if pickles:
        problem = f"{shown(pickles[0])} is a pickle file, which is never loaded: convert the model to safetensors"
    elif ggufs:
        problem = f"this is a folder of GGUF files, give the path of one of them: {shown(ggufs[0])}"
    else:
        problem = f"there is no {_WHOLE} and no {_INDEX} in this folder"
    return ModelFileError(f"{shown(folder.name)}: {problem}")
