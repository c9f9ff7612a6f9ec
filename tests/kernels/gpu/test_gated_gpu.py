"""The gate in the interpreter, against its definition."""

import pytest
import torch

from kernels.batch import AttentionShape
from kernels.gpu.gated import gated
from kernels.reference import TorchOps

F16, F32 = torch.float16, torch.float32


@pytest.mark.parametrize("gelu", [False, True])
@pytest.mark.parametrize(("dtype", "limit"), [(F32, 1e-6), (F16, 1e-3)])
@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (3, 17), (2, 1000), (1, 2500)])
def test_the_gate_is_what_it_is_defined_as(gelu: bool, dtype: torch.dtype, limit: float, rows: int, columns: int) -> None:
    x = (4 * torch.randn(rows, 2 * columns)).to(dtype)
    shape = AttentionShape(heads=1, kv_heads=1, head_dim=2, scale=1.0, epsilon=1e-5, gelu=gelu)
    expected = TorchOps(shape, [], [], dtype).gated(x).float()
    found = gated(x, gelu=gelu)
    assert found.dtype == dtype
    assert float((found.float() - expected).norm() / x.float().norm()) < limit


def test_large_gates_stay_finite() -> None:
    x = torch.tensor([[-1e4, -90.0, 90.0, 1e4, 1.0, 1.0, 1.0, 1.0]])
    for gelu in (False, True):
        assert torch.allclose(gated(x, gelu=gelu), torch.tensor([[0.0, 0.0, 90.0, 1e4]]))


def test_gates_that_are_not_contiguous_are_refused() -> None:
    with pytest.raises(ValueError, match="must be contiguous"):
        gated(torch.randn(4, 6).t(), gelu=False)
