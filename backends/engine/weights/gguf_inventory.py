"""What a GGUF file holds, by the engine's names. Importing this loads no torch."""

import re
from array import array
from pathlib import Path

from backends.engine.errors import ModelFileError
from backends.engine.names import expected
from backends.engine.shape import ModelShape
from backends.engine.shapes.of_gguf import shape_of_gguf
from backends.engine.weights.files import ModelFile, OpenFiles
from backends.engine.weights.gguf_names import gguf_name
from backends.engine.weights.inventory import Inventory, StoredWeight, TensorPlace, demand_complete, demand_shape
from backends.gguf.errors import GgufError, shown
from backends.gguf.model import GgufFile
from backends.gguf.read import Guard, read_gguf

READABLE = frozenset(("F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K"))
"""The storage formats that the engine dequantises."""

_EMBEDDING, _HEAD, _DIVISORS = gguf_name("embed"), gguf_name("head"), "rope_freqs.weight"
_MAX_DIVISORS = 2**16
_IDLE = re.compile(r"blk\.\d+\.attn_rot_embd\.weight")  # files of 2023 store the RoPE frequencies and nothing reads them


def gguf_inventory(path: Path) -> Inventory:
    """Read and check the header of a GGUF file, or of all parts when it is the first of several.

    Raises:
        ModelFileError: the file is malformed or truncated, its architecture or a storage format is not implemented, or a tensor
            is missing, unknown or of the wrong shape.
    """
    if path.suffix == ".safetensors":
        raise ModelFileError(f"{shown(path.name)}: this is a file of a safetensors model, give the path of its folder")
    try:
        file = read_gguf(path, arrays=False, guard=Guard(check_architecture=False))
    except GgufError as error:
        raise ModelFileError(str(error)) from error
    places = {place.name: place for place in _places(file)}
    shape = _shape(file, places)
    wanted = {gguf_name(weight): weight for weight in expected(shape)}
    idle = {name for name in places if name == _DIVISORS or _IDLE.fullmatch(name)}
    demand_complete(path, wanted.keys() - places.keys(), places.keys() - wanted.keys() - idle)
    weights = {}
    for weight, dimensions in expected(shape).items():
        place = places[gguf_name(weight)]
        demand_shape(place, dimensions)
        if place.dtype not in READABLE:
            raise ModelFileError(
                f"{shown(place.path.name)}: tensor {shown(place.name)} is stored as {place.dtype}, which is not supported"
            )
        weights[weight] = StoredWeight(place.dtype, {"weight": place})
    return Inventory(shape=shape, weights=weights, files=_files(file), recipe=file.quantization)


def _places(file: GgufFile) -> list[TensorPlace]:
    return [
        TensorPlace(
            file.shards[tensor.shard].path,
            tensor.name,
            tensor.type.name,
            tuple(reversed(tensor.shape)),
            tensor.offset,
            tensor.nbytes,
        )
        for tensor in file.tensors
    ]


def _files(file: GgufFile) -> tuple[ModelFile, ...]:
    return tuple(ModelFile(shard.path, shard.identity) for shard in file.shards)


def _shape(file: GgufFile, places: dict[str, TensorPlace]) -> ModelShape:
    embedding = places.get(_EMBEDDING)
    vocab = embedding.shape[0] if embedding else max(file.vocab_size, 1)
    divisors = _floats(file, places[_DIVISORS]) if _DIVISORS in places else ()
    return shape_of_gguf(file, vocab=vocab, tied=_HEAD not in places, divisors=divisors)


def _floats(file: GgufFile, place: TensorPlace) -> tuple[float, ...]:
    """The content of a short tensor of positive numbers."""
    if place.dtype != "F32" or len(place.shape) != 1 or place.shape[0] > _MAX_DIVISORS:
        raise ModelFileError(
            f"{shown(place.path.name)}: tensor {shown(place.name)} is {place.dtype} {list(place.shape)}, not a row of F32"
        )
    raw = bytearray(place.nbytes)
    files = OpenFiles(_files(file))
    try:
        files.read_into(place.path, memoryview(raw), place.offset)
    finally:
        files.close()
    values = tuple(array("f", bytes(raw)))
    if not all(0 < value < float("inf") for value in values):
        raise ModelFileError(
            f"{shown(place.path.name)}: tensor {shown(place.name)} holds numbers that are not finite and positive"
        )
    return values
