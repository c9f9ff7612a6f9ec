"""How a batch of rows is drawn from: the numbers of each row, on the host to decide by and on the device to compute with."""

from collections.abc import Sequence

import torch

from backends.engine.sampling.state import Row

# Lower temperatures than this, of which float32 makes zero, let nothing but the largest logit pass either.
_COLDEST = 1e-30


class Settings:
    """The settings of rows, all of which have a temperature above 0. For their meaning see `backends.types.Sampling`.

    `temperature`, `top_k`, `top_p`, `min_p` and `uniform`, the random number of the row's position, are [rows, 1] float64.
    """

    __slots__ = ("min_p", "sampling", "temperature", "top_k", "top_p", "uniform", "uniforms")

    def __init__(self, rows: Sequence[Row], device: torch.device) -> None:
        self.sampling = [row.state.sampling for row in rows]
        self.uniforms = [row.uniform for row in rows]
        table = [
            (max(s.temperature, _COLDEST), s.top_k, s.top_p, s.min_p, u)
            for s, u in zip(self.sampling, self.uniforms, strict=True)
        ]
        columns = torch.tensor(table, dtype=torch.float64).to(device).T.unsqueeze(-1)
        self.temperature, self.top_k, self.top_p, self.min_p, self.uniform = columns.unbind()
