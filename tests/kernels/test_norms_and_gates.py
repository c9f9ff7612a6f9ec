"""Norms and gates by each implementation of the operators, against float64."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.batch import AttentionShape
from kernels.cpu.ops import CpuOps
from kernels.ops import Ops
from kernels.reference import TorchOps

F32, BF16 = torch.float32, torch.bfloat16
EPSILON = 1e-5
KINDS = ("torch", "cpu, 1 thread", "cpu, 2 threads")

rows_of, columns_of = st.sampled_from([1, 2, 7, 8, 9, 40]), st.sampled_from([16, 64, 100, 576, 1537])
loudness_of, seeds = st.sampled_from([1e-3, 1.0, 300.0]), st.integers(0, 1 << 30)
types = pytest.mark.parametrize("dtype", [F32, BF16])
kinds = pytest.mark.parametrize("kind", KINDS)


def ops_of(kind: str, dtype: torch.dtype, *, gelu: bool = False) -> Ops:
    shape = AttentionShape(heads=1, kv_heads=1, head_dim=16, scale=1.0, epsilon=EPSILON, gelu=gelu)
    if kind == "torch":
        return TorchOps(shape, [], [], dtype)
    return CpuOps(shape, [], [], dtype, int(kind[5]))


def rounding(dtype: torch.dtype) -> float:
    """Relative: one rounding to bfloat16, or a few of float32."""
    return 2.0**-8 if dtype == BF16 else 3e-6


def close(found: torch.Tensor, exact: torch.Tensor, dtype: torch.dtype, floor: float = 0.0) -> bool:
    return bool(((found.double() - exact).abs() <= rounding(dtype) * exact.abs() + floor + 1e-30).all())


def normed(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.rms_norm(x, x.shape[-1:], weight.double(), EPSILON)


@types
@kinds
@settings(max_examples=15, deadline=None)
@given(
    rows=rows_of,
    columns=columns_of,
    loudness=loudness_of,
    with_delta=st.booleans(),
    with_post=st.booleans(),
    exact=st.booleans(),
    seed=seeds,
)
def test_the_residual_stream_is_added_to_and_normed(
    kind: str,
    dtype: torch.dtype,
    rows: int,
    columns: int,
    loudness: float,
    with_delta: bool,
    with_post: bool,
    exact: bool,
    seed: int,
) -> None:
    dice = torch.Generator().manual_seed(seed)
    residual, delta = torch.randn(2, rows, columns, generator=dice) * loudness
    weight, post = 1 + torch.randn(2, columns, generator=dice) / 4
    delta = delta.to(dtype)
    added = residual.double()
    if with_delta:
        added = added + (normed(delta.double(), post) if with_post else delta.double())
    stream = residual.clone()
    found = ops_of(kind, dtype).add_norm(
        stream, delta if with_delta else None, weight, post if with_post else None, exact=exact
    )
    assert found.dtype == (F32 if exact else dtype)
    # What is added nearly cancels now and then: the error is that of the larger part.
    size = float(residual.abs().max() + (added - residual.double()).abs().max())
    assert close(stream, added, F32, floor=3e-7 * size)
    assert close(found, normed(added, weight), F32 if exact else dtype, floor=2e-6 * float(weight.abs().max()))


@types
@kinds
@pytest.mark.parametrize("gelu", [False, True])
@settings(max_examples=10, deadline=None)
@given(rows=rows_of, columns=columns_of, loudness=st.sampled_from([0.1, 3.0, 30.0, 1e4]), seed=seeds)
def test_gates_open_as_the_activation_says(
    kind: str, dtype: torch.dtype, gelu: bool, rows: int, columns: int, loudness: float, seed: int
) -> None:
    dice = torch.Generator().manual_seed(seed)
    gate_up = torch.randn(rows, 2 * columns, generator=dice).mul(loudness).to(dtype)
    gate, up = gate_up.double().chunk(2, -1)
    opened = torch.nn.functional.gelu(gate, approximate="tanh") if gelu else torch.nn.functional.silu(gate)
    found = ops_of(kind, dtype, gelu=gelu).gated(gate_up)
    assert found.dtype == dtype
    # Far below zero the gate is shut: there float32 has nothing left of what is relative.
    assert close(
        found, opened * up, dtype, floor=1e-6 * float((gate * up).abs().max()) if loudness > 10 else 3e-6 * loudness**2
    )


@types
@kinds
@pytest.mark.parametrize("gelu", [False, True])
def test_a_gate_far_from_zero_is_wide_open_or_shut(kind: str, dtype: torch.dtype, gelu: bool) -> None:
    gate = torch.tensor([-1e6, -3000.0, -400.0, -128.0, -100.0, -89.0, -40.0, -20.0, -12.0, 0.0, 12.0, 90.0, 1e6]).to(dtype)
    columns = len(gate)
    found = ops_of(kind, dtype, gelu=gelu).gated(torch.cat([gate, torch.ones(columns).to(dtype)])[None])[0]
    shut = 1e-4 if dtype == BF16 or not gelu else 1e-7
    assert (found[:10].abs() <= shut).all()
    assert torch.allclose(found[10:].float(), gate[10:].float(), rtol=1e-5 if dtype == F32 else 2**-8)


@types
def test_rows_do_not_depend_on_how_many_there_are_or_who_computes_them(dtype: torch.dtype) -> None:
    dice = torch.Generator().manual_seed(5)
    residual, weight = torch.randn(40, 576, generator=dice), torch.randn(576, generator=dice)
    delta, gate_up = torch.randn(40, 576, generator=dice).to(dtype), torch.randn(40, 600, generator=dice).to(dtype)

    def outcome(ops: Ops, rows: slice) -> list[torch.Tensor]:
        stream = residual[rows].clone()
        outputs = [ops.add_norm(stream, delta[rows], weight, weight), ops.gated(gate_up[rows])]
        return [stream, *(output.clone() for output in outputs)]

    one, two = (ops_of(kind, dtype, gelu=True) for kind in KINDS[1:])
    whole = outcome(one, slice(None))
    assert all(map(torch.equal, outcome(two, slice(None)), whole))
    for row in (0, 7, 39):
        for alone, among in zip(outcome(one, slice(row, row + 1)), whole, strict=True):
            assert torch.equal(alone[0], among[row])


@kinds
def test_a_norm_of_nothing_is_nothing(kind: str) -> None:
    found = ops_of(kind, BF16).add_norm(torch.zeros(2, 64), None, torch.ones(64))
    assert torch.equal(found, torch.zeros(2, 64, dtype=BF16))
