"""Recognises Llama 3's RoPE scaling in the divisors that a GGUF file has instead of it.

Source: `_compute_llama3_parameters` of transformers; llama.cpp's converter stores its result as `rope_freqs.weight`.
"""

import math
from dataclasses import replace

from backends.engine.shape import RopeShape

# What all published models of the families 3.1 to 3.3 have beside their factor.
_LOW, _HIGH, _ORIGINAL_CONTEXT = 1.0, 4.0, 8_192
_TOLERANCE = 1e-5  # divisors are float32


def llama3_divisor(rope: RopeShape, pair: int, head_dim: int) -> float:
    """By what the scaling divides the frequency of a pair of dimensions."""
    wavelength = 2 * math.pi * math.pow(rope.base, 2 * pair / head_dim)
    turns = rope.original_context / wavelength
    if turns > rope.high:
        return 1.0
    if turns < rope.low:
        return rope.factor
    smooth = (turns - rope.low) / (rope.high - rope.low)
    return 1 / ((1 - smooth) / rope.factor + smooth)


def recognise_llama3(rope: RopeShape) -> RopeShape:
    """The same RoPE with a scaling instead of divisors, or as it was where no published scaling gives these divisors."""
    if not rope.divisors or rope.factor != 1.0:
        return rope
    found = replace(rope, factor=max(rope.divisors), low=_LOW, high=_HIGH, original_context=_ORIGINAL_CONTEXT, divisors=())
    head_dim = 2 * len(rope.divisors)
    matches = all(
        math.isclose(llama3_divisor(found, pair, head_dim), divisor, rel_tol=_TOLERANCE)
        for pair, divisor in enumerate(rope.divisors)
    )
    return found if matches else rope
