"""Writes a safetensors file tensor by tensor, so that no more than one of them is in memory.

Source: the format's README; `__metadata__` is what transformers wants to see.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import torch

from backends.engine.names import Dimensions

_ALIGNMENT = 8


@dataclass(frozen=True, slots=True)
class PlannedTensor:
    """A tensor to be written: `dtype` is the file's own name (`BF16`)."""

    name: str
    dtype: str
    shape: Dimensions
    nbytes: int


def write_safetensors(path: Path, plan: Sequence[PlannedTensor], values: Iterable[torch.Tensor]) -> Iterator[int]:
    """Write a new file and bring it to the disk, yielding the size of each tensor in bytes when it is written.

    Args:
        path: must not exist.
        plan: what the header says, in the order of `values`.
        values: contiguous, of the dtypes and shapes of the plan; taken one at a time.

    Raises:
        OSError: the disk is full, or the like.
    """
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    end = 0
    for tensor in plan:
        header[tensor.name] = {"dtype": tensor.dtype, "shape": tensor.shape, "data_offsets": (end, end + tensor.nbytes)}
        end += tensor.nbytes
    raw = msgspec.json.encode(header)
    raw += b" " * (-len(raw) % _ALIGNMENT)
    with path.open("xb") as file:
        file.write(len(raw).to_bytes(_ALIGNMENT, "little") + raw)
        for tensor, value in zip(plan, values, strict=True):
            file.write(value.view(torch.uint8).numpy().data)
            yield tensor.nbytes
        file.flush()
        os.fsync(file.fileno())
