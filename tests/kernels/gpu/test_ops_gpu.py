"""All operators of a model in the interpreter, beside their definitions, over the same paged caches as those of the CPU."""

from collections.abc import Callable

import pytest
import torch

from kernels.gpu.ops import TritonOps
from kernels.ops import Attention, Ops
from kernels.reference import TorchOps
from tests.kernels.paged import F32, INT8, Case, Paged, error, widened

F16 = torch.float16
CPU = torch.device("cpu")

CASES = {
    "float32": Case(block=16, window=20),
    "float16": Case(block=16, dtype=F16, stored=F16, window=33),
    "int8 cache": Case(block=32, stored=INT8, window=40),
    "one KV head of 256, norms": Case(block=16, heads=4, kv_heads=1, head_dim=256, qk_norm=True),
    "as many KV heads, soft cap": Case(block=64, heads=2, kv_heads=2, head_dim=80, softcap=5.0, window=1),
}
cases = pytest.mark.parametrize("case", CASES.values(), ids=CASES)
SPANS = [(0, 1), (40, 3), (15, 5)]


@cases
@pytest.mark.parametrize(
    "plan",
    [lambda ops, paged: ops.decode(paged.decode_batch()), lambda ops, paged: ops.prefill(paged.chunks())],
    ids=["single tokens", "parts of prompts"],
)
def test_attention_is_what_it_is_defined_as(case: Case, plan: Callable[[Ops, Paged], Attention]) -> None:
    paged = Paged(case, SPANS)
    ours, theirs = paged.pools(), paged.pools()
    found = plan(TritonOps(paged.shape, ours, paged.layers(), case.dtype, CPU), paged)
    expected = plan(TorchOps(paged.shape, theirs, paged.layers(), case.dtype), paged)
    limit = 3e-6 if case.dtype == F32 else 2e-3
    for layer, qkv in enumerate(paged.qkv):
        assert error(found(qkv.clone(), layer), expected(qkv.clone(), layer)) < limit
    for one, other in zip(ours, theirs, strict=True):
        # What was NaN stays so: nothing is written where it does not belong.
        assert torch.equal(widened(one).isnan(), widened(other).isnan())
        assert error(widened(one).nan_to_num(), widened(other).nan_to_num()) < limit


def test_the_residual_stream_and_the_gate_are_what_they_are_defined_as() -> None:
    paged = Paged(CASES["float32"], [(0, 1)])
    ops = TritonOps(paged.shape, [], [], F32, CPU)
    definition = TorchOps(paged.shape, [], [], F32)
    ours, delta, weight, post = paged.random(5, 100), paged.random(5, 100), paged.random(100), paged.random(100)
    theirs = ours.clone()
    for after in (None, post):
        assert error(ops.add_norm(ours, delta, weight, after), definition.add_norm(theirs, delta, weight, after)) < 1e-6
        assert error(ours, theirs) < 1e-6
    both = paged.random(5, 200)
    assert error(ops.gated(both), definition.gated(both)) < 1e-6
