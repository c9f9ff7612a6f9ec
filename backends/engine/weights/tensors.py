"""From bytes of a file to checked tensors."""

import torch

from backends.engine.errors import ModelFileError
from backends.engine.weights.files import OpenFiles
from backends.engine.weights.inventory import TensorPlace
from backends.gguf.errors import shown

PLAIN = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
"""The formats that hold numbers as they are."""

_INTEGERS = {"I32": torch.int32, "I64": torch.int64}


def read_bytes(files: OpenFiles, place: TensorPlace, start: int, stop: int) -> torch.Tensor:
    """Bytes `start` to `stop` of a tensor, as new uint8. Raises `ModelFileError` when the file does not have them any more."""
    raw = torch.empty(stop - start, dtype=torch.uint8)
    files.read_into(place.path, raw.numpy().data, place.offset + start)
    return raw


def read_tensor(files: OpenFiles, place: TensorPlace) -> torch.Tensor:
    """A whole tensor of plain numbers, in its own type and shape.

    Raises:
        ModelFileError: it holds infinity or NaN, or the file does not have it any more.
    """
    raw = read_bytes(files, place, 0, place.nbytes)
    if place.dtype in _INTEGERS:
        return raw.view(_INTEGERS[place.dtype]).view(place.shape)
    return demand_finite(raw.view(PLAIN[place.dtype]), place).view(place.shape)


def demand_finite(values: torch.Tensor, place: TensorPlace) -> torch.Tensor:
    """Return what was given. Raises `ModelFileError` that names the tensor when it holds infinity or NaN."""
    low, high = torch.aminmax(values)  # one pass without a copy; NaN comes out as NaN
    if not torch.isfinite(low) or not torch.isfinite(high):
        raise ModelFileError(f"{shown(place.path.name)}: tensor {shown(place.name)} holds numbers that are not finite")
    return values
