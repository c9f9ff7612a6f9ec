"""Where tensors lie in a file: aligned, inside it, apart from each other, and up to its end.

A download that was cut off shows here. The data themselves are never read. Source: GGUF specification, `gguf.cpp` of llama.cpp.
"""

from dataclasses import dataclass

from backends.gguf.errors import GgufError, shown
from backends.gguf.header import Header
from backends.gguf.limits import MAX_ALIGNMENT
from backends.gguf.types import GgmlType


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """A tensor of a checked file.

    `shape` is in ggml order: `shape[0]` varies fastest, so the matching torch shape is reversed. The data are the `nbytes`
    bytes at the absolute `offset` of the file `shards[shard]`.
    """

    name: str
    shape: tuple[int, ...]
    type: GgmlType
    offset: int
    nbytes: int
    shard: int = 0


def place_tensors(header: Header, size: int, shard: int) -> tuple[TensorInfo, ...]:
    """Check the tensor table against a file of `size` bytes, and give every tensor its absolute offset.

    Raises:
        GgufError: a tensor is unaligned, reaches beyond the file or into another; or the file goes on after the last one.
    """
    if not header.tensors:
        return ()
    room = size - header.data_offset
    for tensor in header.tensors:
        if tensor.offset % header.alignment:
            raise GgufError(f"tensor {shown(tensor.name)} has offset {tensor.offset:,}, not a multiple of {header.alignment:,}")
        if tensor.offset + tensor.nbytes > room:
            raise GgufError(
                f"tensor {shown(tensor.name)} ends at byte {tensor.offset + tensor.nbytes:,} of the data, "
                f"but the file holds only {max(room, 0):,}: is it truncated?"
            )
    end, before = 0, ""
    for tensor in sorted(header.tensors, key=lambda tensor: tensor.offset):
        if tensor.offset < end:
            raise GgufError(
                f"tensor {shown(tensor.name)} at offset {tensor.offset:,} overlaps {shown(before)}, which ends at {end:,}"
            )
        end, before = tensor.offset + tensor.nbytes, tensor.name
    if room - end > MAX_ALIGNMENT:
        raise GgufError(f"{room - end:,} bytes follow the last tensor, above the limit of {MAX_ALIGNMENT:,}")
    return tuple(
        TensorInfo(tensor.name, tensor.shape, tensor.type, header.data_offset + tensor.offset, tensor.nbytes, shard)
        for tensor in header.tensors
    )
