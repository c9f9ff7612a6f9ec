"""The operators between the products: what they take is memory traffic."""

from collections.abc import Iterator
from functools import partial

import torch
from torch.nn import functional as F

from kernels.batch import AttentionShape
from kernels.bench.case import Case, Work
from kernels.gpu.gated import gated
from kernels.gpu.norm import add_norm
from kernels.gpu.transfer import gather_blocks
from kernels.reference import TorchOps

_SHAPE = AttentionShape(heads=1, kv_heads=1, head_dim=2, scale=1.0, epsilon=1e-5)


def cases() -> Iterator[Case]:
    """As in the layers of a model of 8 billion parameters."""
    for rows in (16, 4096):
        yield Case(operator="residual and norm", name=f"{rows} x 4096", make=partial(_norm, rows))
        yield Case(operator="gate", name=f"{rows} x 14336", make=partial(_gate, rows))
    yield Case(operator="gathered blocks", name="1024 blocks of a megabyte", make=_gather)


def _norm(rows: int, device: torch.device, dtype: torch.dtype, small: bool) -> Work:
    rows, hidden = (3, 100) if small else (rows, 4096)
    stream, delta = torch.randn(rows, hidden, device=device), torch.randn(rows, hidden, device=device, dtype=dtype)
    weight = torch.rand(hidden, device=device)
    definition = TorchOps(_SHAPE, [], [], dtype)
    before = stream.clone()
    return Work(
        ours=lambda: add_norm(stream, delta, weight, epsilon=1e-5, dtype=dtype),
        peer=lambda: F.rms_norm(stream.add_(delta), (hidden,), weight, 1e-5).to(dtype),
        exact=lambda: definition.add_norm(before.clone(), delta, weight),
        limit=5e-3,
        moved=rows * hidden * (4 + 4 + 2 * dtype.itemsize),
    )


def _gate(rows: int, device: torch.device, dtype: torch.dtype, small: bool) -> Work:
    rows, columns = (3, 100) if small else (rows, 14_336)
    both = torch.randn(rows, 2 * columns, device=device, dtype=dtype)
    definition = TorchOps(_SHAPE, [], [], dtype)
    return Work(
        ours=lambda: gated(both, gelu=False),
        peer=lambda: F.silu(both[:, :columns]) * both[:, columns:],
        exact=lambda: definition.gated(both),
        limit=5e-3,
        moved=3 * rows * columns * dtype.itemsize,
    )


def _gather(device: torch.device, dtype: torch.dtype, small: bool) -> Work:
    count, size = (3, 64) if small else (1024, 1 << 20)
    cache = torch.randn(2 * count, size // dtype.itemsize, device=device).to(dtype)
    ids = torch.randperm(2 * count, device=device)[:count]
    return Work(
        ours=lambda: gather_blocks(cache, ids),
        peer=lambda: cache[ids],
        exact=lambda: cache[ids],
        limit=0.0,
        moved=2 * count * size,
    )
