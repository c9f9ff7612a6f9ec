"""The header of a safetensors file, checked before anything else of the file is looked at. Importing this loads no torch.

Source: the format's README and `SafeTensors::read_metadata` of safetensors 0.8: an 8-byte length, JSON, then the data, which
the tensors fill from end to end without gap or overlap.
"""

import math
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta, Raw, Struct

from backends.engine.weights.files import ModelFile, fill, opened
from backends.engine.weights.inventory import TensorPlace
from backends.gguf.errors import GgufError, shown

MAX_HEADER_BYTES = 100_000_000
MAX_TENSORS = 65_536
_MAX_COLONS = 1_000_000
_MAX_ENTRY_BYTES = 1_024
_LENGTH_BYTES = 8

ITEM_BYTES = {
    **dict.fromkeys(("BOOL", "U8", "I8", "F8_E5M2", "F8_E4M3", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ"), 1),
    **dict.fromkeys(("U16", "I16", "F16", "BF16"), 2),
    **dict.fromkeys(("U32", "I32", "F32"), 4),
    **dict.fromkeys(("U64", "I64", "F64", "C64"), 8),
}
"""Bytes of one number by dtype; formats below a byte are refused."""

Extent = Annotated[int, Meta(ge=0, le=2**62)]


class _Entry(Struct):
    dtype: str
    shape: list[Extent]
    data_offsets: tuple[Extent, Extent]


def read_header(path: Path, within: Path | None = None) -> tuple[ModelFile, list[TensorPlace]]:
    """Read and check the header of one file.

    Args:
        path: the file.
        within: the folder that the file, or what it links to, must lie in.

    Raises:
        ModelFileError: the file cannot be opened, its header is malformed, above a limit or at odds with the size of the file.
    """
    with opened(path, within) as (fd, identity):
        header, start = _header(fd, identity.size)
        places = [_place(path, name, raw, start) for name, raw in header.items()]
        _demand_tiling(places, start, identity.size)
        return ModelFile(path, identity, within), places


def _header(fd: int, size: int) -> tuple[dict[str, Raw], int]:
    """The entries of the header by tensor, not decoded yet, and where the data start."""
    if size < _LENGTH_BYTES:
        raise GgufError(f"file has {size} bytes, a safetensors header needs at least {_LENGTH_BYTES}")
    length = int.from_bytes(_read(fd, _LENGTH_BYTES, 0), "little")
    if length > MAX_HEADER_BYTES:
        raise GgufError(f"header length {length:,} is above the limit of {MAX_HEADER_BYTES:,} bytes: is it a safetensors file?")
    if length > size - _LENGTH_BYTES:
        raise GgufError(f"header of {length:,} bytes does not fit the file of {size:,} bytes: is it truncated?")
    raw = _read(fd, length, _LENGTH_BYTES)
    # An entry costs at least one colon, so this bounds what decoding can allocate.
    colons = raw.count(b":")
    if colons > _MAX_COLONS:
        raise GgufError(f"header has {colons:,} colons, above the limit of {_MAX_COLONS:,}")
    try:
        raw.decode()  # what stays undecoded below would not be looked at
        entries = msgspec.json.decode(raw, type=dict[str, Raw])
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise GgufError(f"header: {error}") from error
    entries.pop("__metadata__", None)
    if len(entries) > MAX_TENSORS:
        raise GgufError(f"{len(entries):,} tensors are above the limit of {MAX_TENSORS:,}")
    return entries, _LENGTH_BYTES + length


def _place(path: Path, name: str, raw: Raw, start: int) -> TensorPlace:
    field = f"tensor {shown(name)}"
    if memoryview(raw).nbytes > _MAX_ENTRY_BYTES:
        raise GgufError(f"{field}: entry has {memoryview(raw).nbytes:,} bytes, above the limit of {_MAX_ENTRY_BYTES:,}")
    try:
        entry = msgspec.json.decode(raw, type=_Entry)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise GgufError(f"{field}: {error}") from error
    item_bytes = ITEM_BYTES.get(entry.dtype)
    if item_bytes is None:
        raise GgufError(f"{field} has the dtype {shown(entry.dtype)}, which is not supported")
    begin, end = entry.data_offsets
    nbytes = math.prod(entry.shape) * item_bytes
    if end - begin != nbytes:
        raise GgufError(f"{field}: {entry.dtype} {entry.shape} needs {nbytes:,} bytes, but data_offsets hold {end - begin:,}")
    return TensorPlace(path, name, entry.dtype, tuple(entry.shape), start + begin, nbytes)


def _demand_tiling(places: list[TensorPlace], start: int, size: int) -> None:
    """Demand that the tensors fill the file from the header to the end, one behind the other."""
    end, before = start, "the header"
    for place in sorted(places, key=lambda place: (place.offset, place.nbytes)):
        if place.offset != end:
            relation = "overlaps" if place.offset < end else "leaves a gap behind"
            raise GgufError(f"tensor {shown(place.name)} at byte {place.offset:,} {relation} {before}, which ends at {end:,}")
        end, before = place.offset + place.nbytes, shown(place.name)
    if end != size:
        problem = "is it truncated?" if size < end else "what follows belongs to no tensor"
        raise GgufError(f"tensors end at byte {end:,}, but the file has {size:,} bytes: {problem}")


def _read(fd: int, count: int, offset: int) -> bytes:
    content = bytearray(count)
    fill(fd, memoryview(content), offset)
    return bytes(content)
