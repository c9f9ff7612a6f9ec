"""Adding and norming in the interpreter, against the definition."""

import pytest
import torch

from kernels.batch import AttentionShape
from kernels.gpu.norm import add_norm
from kernels.reference import TorchOps

F16, F32 = torch.float16, torch.float32
EPSILON = 1e-5
LIMITS = {F32: 1e-6, F16: 1e-3}
OPS = {
    dtype: TorchOps(AttentionShape(heads=1, kv_heads=1, head_dim=2, scale=1.0, epsilon=EPSILON), [], [], dtype)
    for dtype in LIMITS
}


def error(found: torch.Tensor, exact: torch.Tensor) -> float:
    return float((found.double() - exact.double()).norm() / exact.double().norm())


def apart(rows: int, columns: int, gap: int) -> torch.Tensor:
    """Random rows with NaN between them."""
    wide = torch.full((rows, columns + gap), torch.nan)
    wide[:, :columns] = torch.randn(rows, columns) * 3
    return wide[:, :columns]


@pytest.mark.parametrize("dtype", [F32, F16])
@pytest.mark.parametrize("what", ["norm", "add", "post"])
@pytest.mark.parametrize(
    ("rows", "columns"), [(1, 1), (3, 17), (2, 63), (4, 500), (2, 1000), (2, 5000), (1, 16384), (3, 20011)]
)
def test_the_stream_and_its_norm_are_what_they_are_defined_as(dtype: torch.dtype, what: str, rows: int, columns: int) -> None:
    stream = apart(rows, columns, 5)
    delta = None if what == "norm" else apart(rows, columns, 3).to(dtype)
    weight, post = torch.randn(2, columns)
    expected_stream = stream.clone()
    expected = OPS[dtype].add_norm(expected_stream, delta, weight, post if what == "post" else None)
    found = add_norm(stream, delta, weight, post if what == "post" else None, epsilon=EPSILON, dtype=dtype)
    assert found.dtype == dtype
    assert error(stream, expected_stream) < LIMITS[F32]
    assert error(found, expected) < LIMITS[dtype]
    assert stream.stride(0) == columns + 5


@pytest.mark.parametrize("columns", [100, 17000])
def test_an_exact_norm_of_a_half_precision_delta_is_float32(columns: int) -> None:
    stream, delta, weight = torch.randn(2, columns), torch.randn(2, columns).to(F16), torch.randn(columns)
    expected = OPS[F16].add_norm(stream.clone(), delta, weight, exact=True)
    found = add_norm(stream, delta, weight, epsilon=EPSILON, dtype=F32)
    assert found.dtype == F32
    assert error(found, expected) < LIMITS[F32]


def test_what_lies_between_rows_stays() -> None:
    wide = torch.full((3, 40), torch.nan)
    wide[:, :30] = 1.0
    add_norm(wide[:, :30], torch.ones(3, 30), torch.ones(30), epsilon=EPSILON, dtype=F32)
    assert torch.equal(wide[:, :30], torch.full((3, 30), 2.0))
    assert wide[:, 30:].isnan().all()


def test_a_row_does_not_depend_on_the_others() -> None:
    stream, delta, weight = torch.randn(5, 700), torch.randn(5, 700).to(F16), torch.randn(700)
    alone = add_norm(stream[3:4].clone(), delta[3:4], weight, weight, epsilon=EPSILON, dtype=F16)
    among = add_norm(stream, delta, weight, weight, epsilon=EPSILON, dtype=F16)
    assert torch.equal(alone[0], among[3])


def test_a_norm_of_zeros_is_zero_and_of_no_rows_is_empty() -> None:
    weight = torch.ones(64)
    assert not add_norm(torch.zeros(2, 64), None, weight, epsilon=EPSILON, dtype=F16).any()
    assert add_norm(torch.zeros(0, 64), None, weight, epsilon=EPSILON, dtype=F16).shape == (0, 64)


def test_what_does_not_fit_is_refused() -> None:
    stream, weight = torch.randn(2, 8), torch.randn(8)
    for arguments, said in (
        ((stream.half(), None, weight), "float16"),
        ((stream.t(), None, torch.randn(2)), "dense rows"),
        ((stream, torch.randn(2, 9), weight), r"\[2, 9\]"),
        ((stream, None, torch.randn(7)), r"\[7\]"),
        ((stream, stream, weight, weight.half()), "float16"),
        ((stream, None, weight, weight), "nothing to norm"),
    ):
        with pytest.raises(ValueError, match=said):
            add_norm(*arguments, epsilon=EPSILON, dtype=F32)
