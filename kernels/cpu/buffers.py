"""Memory for results that live until the same operator runs again."""

import torch


class Buffers:
    """Named buffers that grow and never shrink. `dtype` is that of activations."""

    def __init__(self, dtype: torch.dtype) -> None:
        self._dtype = dtype
        self._held: dict[str, torch.Tensor] = {}

    def take(self, name: str, rows: int, columns: int, dtype: torch.dtype | None = None) -> torch.Tensor:
        """Return [rows, columns], contiguous, with whatever was in it before."""
        held = self._held.get(name)
        if held is None or held.numel() < rows * columns:
            held = self._held[name] = torch.empty(rows * columns, dtype=dtype or self._dtype)
        return held[: rows * columns].view(rows, columns)
