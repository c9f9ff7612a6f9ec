"""The CPU as a device. See `kernels.ops.Device`."""

from collections.abc import Callable, Sequence

import psutil
import torch

from kernels.batch import AttentionShape, KvPool, LayerPlace
from kernels.cpu.buffers import Buffers
from kernels.cpu.grouped import AVAILABLE, GroupedProduct
from kernels.cpu.logits import DenseLogits, Int8Logits
from kernels.cpu.ops import CpuOps
from kernels.cpu.products import CpuDenseProduct, Int4Product, Int8DynamicProduct, Int8Product
from kernels.dense import DenseProduct
from kernels.reference import TorchOps

_LANES = 16  # the vectors that kernels read the cache in
_GROUP = 32


class CpuDevice:
    """At most `threads` threads compute."""

    place = torch.device("cpu")
    name = "cpu"
    half = torch.bfloat16
    block = 8
    has_fp8 = captures = False
    int8_group = _GROUP if AVAILABLE else 0

    def __init__(self, threads: int) -> None:
        self._threads, self._buffers = threads, Buffers(torch.bfloat16)

    def memory_for_cache(self) -> int:
        """See `kernels.ops.Device.memory_for_cache`: a quarter, for other programs run on the same memory."""
        return int(psutil.virtual_memory().available // 4)

    @property
    def has_fast_bf16(self) -> bool:
        """See `kernels.ops.Device.has_fast_bf16`."""
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())

    def dense(self, weight: torch.Tensor, bias: torch.Tensor | None) -> DenseProduct:
        """See `kernels.ops.Device.dense`."""
        return CpuDenseProduct(weight, bias)

    def int4(
        self, codes: torch.Tensor, scales: torch.Tensor, minima: torch.Tensor, group: int, bias: torch.Tensor | None
    ) -> GroupedProduct | Int4Product:
        """See `kernels.ops.Device.int4`."""
        if AVAILABLE:
            return GroupedProduct(codes, scales, minima, group, bias, self._buffers, self._threads)
        return Int4Product(codes, scales, minima, group, bias)

    def int8(self, codes: torch.Tensor, scales: torch.Tensor, bias: torch.Tensor | None) -> GroupedProduct | Int8Product:
        """See `kernels.ops.Device.int8`."""
        if AVAILABLE:
            return GroupedProduct(codes, scales, None, _GROUP, bias, self._buffers, self._threads)
        return Int8Product(codes, scales, bias)

    def fp8(self, weight: torch.Tensor, bias: torch.Tensor | None) -> DenseProduct:
        """See `kernels.ops.Device.fp8`."""
        raise ValueError("CPUs do not multiply 8-bit floating point")

    def int8_dynamic(self, codes: torch.Tensor, scales: torch.Tensor, bias: torch.Tensor | None) -> Int8DynamicProduct:
        """See `kernels.ops.Device.int8_dynamic`."""
        return Int8DynamicProduct(codes, scales, bias, self._buffers, self._threads)

    def dense_logits(self, weight: torch.Tensor) -> DenseLogits:
        """See `kernels.ops.Device.dense_logits`."""
        return DenseLogits(weight, self._threads)

    def int8_logits(self, codes: torch.Tensor, scales: torch.Tensor) -> Int8Logits:
        """See `kernels.ops.Device.int8_logits`."""
        return Int8Logits(codes, scales, self._threads)

    def capture(self, function: Callable[[], torch.Tensor]) -> Callable[[], torch.Tensor]:
        """See `kernels.ops.Device.capture`: nothing is saved."""
        return function

    def ops(
        self, shape: AttentionShape, pools: Sequence[KvPool], layers: Sequence[LayerPlace], dtype: torch.dtype
    ) -> CpuOps | TorchOps:
        """See `kernels.ops.Device.ops`."""
        if shape.heads % shape.kv_heads or shape.head_dim % 2:
            raise ValueError(f"{shape.heads} heads of {shape.head_dim} cannot share {shape.kv_heads} key/value heads")
        if shape.head_dim % _LANES:
            return TorchOps(shape, pools, layers, dtype)
        return CpuOps(shape, pools, layers, dtype, self._threads)
