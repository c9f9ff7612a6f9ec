"""What "auto" means on this machine and for this file, and where the two precisions cross."""

import logging
from time import perf_counter

import torch

from backends.engine.config import EngineConfig
from backends.engine.precision.int4 import Int4, round_groups
from backends.engine.precision.linear import Dense
from backends.engine.precision.precisions import Precisions

log = logging.getLogger("baton.engine")

_ROWS = (8, 12, 16, 24, 32, 48)
_REPEATS = 5


def choose(config: EngineConfig, hidden: int, intermediate: int) -> Precisions:
    """Decide the precisions of a model.

    Args:
        hidden, intermediate: its widths, by which the crossover is measured.
    """
    prefill = {"auto": "bf16" if has_fast_bf16() else "fp32", "decode": None}.get(config.prefill, config.prefill)
    decode = "file" if config.decode == "auto" else config.decode
    head = "file" if config.head == "auto" else config.head
    if config.head == "auto" and config.decode == "fp32":
        head = "fp32"
    crossover = 0
    if prefill == "bf16" and decode not in ("bf16", "fp32"):
        crossover = measure_crossover(hidden, intermediate)
        log.info("decoding with more than %d rows uses the prefill weights: measured to be faster here", crossover)
    return Precisions(prefill=None if prefill == decode else prefill, decode=decode, head=head, crossover=crossover)


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
