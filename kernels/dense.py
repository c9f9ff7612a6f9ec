"""Products with weights that are not quantised, by torch: the same on every device."""

import torch
from torch.nn import functional as F


class DenseProduct:
    """Weights in a floating type; see `kernels.ops.Device.dense`."""

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None) -> None:
        self._weight = weight
        self._bias = None if bias is None else bias.to(weight.device, weight.dtype)
        self.nbytes = weight.nbytes

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Multiply; activations of another type are converted and the result is converted back."""
        if x.dtype == self._weight.dtype:
            return F.linear(x, self._weight, self._bias)
        return F.linear(x.to(self._weight.dtype), self._weight, self._bias).to(x.dtype)
