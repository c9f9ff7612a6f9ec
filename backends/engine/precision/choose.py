"""What "auto" means on this machine and for this file, and where the two precisions cross."""

import logging
from time import perf_counter

import torch

from backends.engine.config import EngineConfig
from backends.engine.names import expected
from backends.engine.precision.build import DENSE_KINDS
from backends.engine.precision.int4 import Int4, round_groups
from backends.engine.precision.linear import Dense
from backends.engine.precision.precisions import Precisions
from backends.engine.weights.source import WeightSource

log = logging.getLogger("baton.engine")

_ROWS = (8, 12, 16, 24, 32, 48)
_REPEATS = 5


def choose(config: EngineConfig, source: WeightSource) -> Precisions:
    """Decide the precisions of a model. The crossover is measured by the widths of its layers."""
    prefill = {"auto": "bf16" if has_fast_bf16() else "fp32", "decode": None}.get(config.prefill, config.prefill)
    decode: str = config.decode
    if decode == "auto":
        decode = "file" if _is_quantised(source) else "bf16"
    head = "file" if config.head == "auto" else config.head
    if config.head == "auto" and config.decode == "fp32":
        head = "fp32"
    crossover = 0
    if prefill == "bf16" and decode not in ("bf16", "fp32"):
        crossover = measure_crossover(source.shape.hidden, source.shape.intermediate)
        log.info("decoding with more than %d rows uses the prefill weights: measured to be faster here", crossover)
    return Precisions(prefill=None if prefill == decode else prefill, decode=decode, head=head, crossover=crossover)


def _is_quantised(source: WeightSource) -> bool:
    """Whether any matrix of a layer has 8 bits or fewer: else one set of weights is what the file holds, for both phases."""
    names = (name for name, size in expected(source.shape).items() if name.startswith("layers.") and len(size) == 2)
    return any(source.kind(name) not in DENSE_KINDS for name in names)


def has_fast_bf16() -> bool:
    """Whether the CPU multiplies bfloat16 faster than float32."""
    return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def measure_crossover(hidden: int, intermediate: int) -> int:
    """Find up to how many rows 4-bit products are faster than bfloat16 ones, by the widest product of a layer."""
    weight = torch.rand(intermediate, hidden)
    packed, dense = Int4(round_groups(weight, 32), None), Dense(weight.bfloat16(), None)
    best = _ROWS[0]
    for rows in _ROWS:
        x = torch.rand(rows, hidden).bfloat16()
        if _time(packed, x) > _time(dense, x):
            break
        best = rows
    return best


def _time(linear: Int4 | Dense, x: torch.Tensor) -> float:
    times = []
    for _ in range(_REPEATS):
        began = perf_counter()
        linear(x)
        times.append(perf_counter() - began)
    return min(times)
