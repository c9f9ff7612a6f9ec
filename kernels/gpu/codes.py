"""Eight-bit codes of keys and values, for every kernel that writes or reads them. Definition: `kernels.kv_codes`."""

import triton
import triton.language as tl


@triton.jit
def scale_of(b_largest, LIMIT: tl.constexpr):
    """The scale of vectors whose largest magnitudes are given. The division is exact to the last bit, as torch's is."""
    return tl.div_rn(b_largest, tl.full(b_largest.shape, LIMIT, tl.float32))


@triton.jit
def inverse_of(b_scale):
    """What numbers are multiplied by to become codes; 0 where all of them are 0."""
    b_one = tl.full(b_scale.shape, 1.0, tl.float32)
    return tl.where(b_scale > 0, tl.div_rn(b_one, tl.where(b_scale > 0, b_scale, b_one)), 0.0)


@triton.jit
def _nearest(b_x):
    """Round to the nearest integer, halves to even.

    Only comparisons: a difference could be fused with the product that `b_x` is, and then would see it unrounded.
    """
    b_floor = tl.floor(b_x)
    b_middle = b_floor + 0.5
    m_odd = b_floor != 2.0 * tl.floor(b_floor * 0.5)
    return b_floor + tl.where((b_x > b_middle) | ((b_x == b_middle) & m_odd), 1.0, 0.0)


@triton.jit
def _nearest_e4m3(b_x):
    """Round to what float8_e4m3fn can hold, halves to even: the cast that follows is exact then, by whatever means.

    Triton's interpreter (3.9) loses what carries over into the exponent.
    """
    b_bits = b_x.to(tl.int32, bitcast=True)
    # three bits of the mantissa stay; below 2**-6 steps are 2**-9
    b_normal = (b_bits + 0x7FFFF + ((b_bits >> 20) & 1)) & -0x100000
    b_small = (_nearest(b_x * 512.0) * 0.001953125).to(tl.int32, bitcast=True)
    # zeros keep their sign
    b_rounded = tl.where(tl.abs(b_x) < 0.015625, b_small, b_normal) | (b_bits & -0x80000000)
    return b_rounded.to(tl.float32, bitcast=True)


@triton.jit
def code_of(b_x, b_inverse, TYPE: tl.constexpr):
    """Codes of numbers, by the inverse of their scale."""
    b_scaled = b_x * b_inverse
    b_rounded = _nearest(b_scaled) if TYPE.is_int() else _nearest_e4m3(b_scaled)
    return b_rounded.to(TYPE)
