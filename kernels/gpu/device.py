"""An NVIDIA GPU as a device, or the CPU with a GPU's kernels in Triton's interpreter. See `kernels.ops.Device`."""

from collections.abc import Callable, Sequence
from typing import Any

import psutil
import torch

from kernels.batch import AttentionShape, KvPool, LayerPlace
from kernels.dense import DenseProduct
from kernels.gpu.fp8 import LEAST_CAPABILITY as LEAST_FOR_FP8
from kernels.gpu.launch import capability, interpreted
from kernels.gpu.ops import TritonOps
from kernels.gpu.products import DenseLogits, Fp8Product, Int8DynamicProduct, Int8Logits, QuantisedProduct
from kernels.gpu.weight_layout import INT8_GROUP, pack_int4, pack_int8
from kernels.problems import DeviceError

_CALLS_BEFORE = 2
LEAST_CAPABILITY = 80
"""Ampere. GPUs before it have no bfloat16."""


def open_gpu(name: str) -> "GpuDevice":
    """Open `cuda` or `interpreter`.

    Raises:
        DeviceError: there is no such GPU, it is too old, or the interpreter was not chosen before Triton was imported.
    """
    if name == "interpreter":
        if not interpreted():
            raise DeviceError("device = 'interpreter' needs TRITON_INTERPRET=1 in the environment")
        return GpuDevice(torch.device("cpu"))
    if not torch.cuda.is_available():
        raise DeviceError(f"device = {name!r}, but torch {torch.__version__} finds no NVIDIA GPU")
    device = torch.device("cuda", torch.cuda.current_device())
    found = capability(device)
    if found < LEAST_CAPABILITY:
        gpu = torch.cuda.get_device_name(device)
        raise DeviceError(f"{gpu} has compute capability {_dotted(found)}, at least {_dotted(LEAST_CAPABILITY)} is needed")
    return GpuDevice(device)


def _dotted(capability: int) -> str:
    return f"{capability // 10}.{capability % 10}"


class GpuDevice:
    """Kernels are Triton's, dense products torch's."""

    int8_group = INT8_GROUP
    block = 16
    captures = True

    def __init__(self, place: torch.device) -> None:
        self.place = place
        self._real = place.type == "cuda"
        self._memory: Any = None  # that of all graphs, which never run at the same time

    @property
    def name(self) -> str:
        """See `kernels.ops.Device.name`."""
        return torch.cuda.get_device_name(self.place) if self._real else "interpreter"

    @property
    def half(self) -> torch.dtype:
        """See `kernels.ops.Device.half`. The interpreter computes bfloat16 wrongly."""
        return torch.bfloat16 if self._real else torch.float16

    @property
    def has_fast_bf16(self) -> bool:
        """See `kernels.ops.Device.has_fast_bf16`."""
        return self._real

    @property
    def has_fp8(self) -> bool:
        """See `kernels.ops.Device.has_fp8`."""
        return capability(self.place) >= LEAST_FOR_FP8

    def memory_for_cache(self) -> int:
        """See `kernels.ops.Device.memory_for_cache`: most of what is free, as nothing else runs on a GPU that serves."""
        if self._real:
            return int(torch.cuda.mem_get_info(self.place)[0] * 9 // 10)
        return int(psutil.virtual_memory().available // 4)

    def dense(self, weight: torch.Tensor, bias: torch.Tensor | None) -> DenseProduct:
        """See `kernels.ops.Device.dense`."""
        return DenseProduct(weight.to(self.place), bias)

    def int4(
        self, codes: torch.Tensor, scales: torch.Tensor, minima: torch.Tensor, group: int, bias: torch.Tensor | None
    ) -> QuantisedProduct:
        """See `kernels.ops.Device.int4`."""
        codes, scales, minima = self._placed(codes, scales, minima)
        return QuantisedProduct(pack_int4(codes, scales, minima, group), bias)

    def int8(self, codes: torch.Tensor, scales: torch.Tensor, bias: torch.Tensor | None) -> QuantisedProduct:
        """See `kernels.ops.Device.int8`."""
        codes, scales = self._placed(codes, scales)
        return QuantisedProduct(pack_int8(codes, scales), bias)

    def int8_dynamic(self, codes: torch.Tensor, scales: torch.Tensor, bias: torch.Tensor | None) -> Int8DynamicProduct:
        """See `kernels.ops.Device.int8_dynamic`."""
        codes, scales = self._placed(codes, scales)
        return Int8DynamicProduct(codes, scales, bias)

    def fp8(self, weight: torch.Tensor, bias: torch.Tensor | None) -> Fp8Product:
        """See `kernels.ops.Device.fp8`."""
        if not self.has_fp8:
            raise ValueError(f"{self.name} does not multiply 8-bit floating point")
        return Fp8Product(weight.to(self.place), bias)

    def dense_logits(self, weight: torch.Tensor) -> DenseLogits:
        """See `kernels.ops.Device.dense_logits`."""
        return DenseLogits(weight.to(self.place))

    def int8_logits(self, codes: torch.Tensor, scales: torch.Tensor) -> Int8Logits:
        """See `kernels.ops.Device.int8_logits`."""
        codes, scales = self._placed(codes, scales)
        return Int8Logits(pack_int8(codes, scales), self.half)

    def capture(self, function: Callable[[], torch.Tensor]) -> Callable[[], torch.Tensor]:
        """See `kernels.ops.Device.capture`. In the interpreter the function is called again each time."""
        if not self._real:
            return function
        # Kernels are compiled and libraries allocate at the first call, which cannot be recorded.
        aside = torch.cuda.Stream(self.place)
        aside.wait_stream(torch.cuda.current_stream(self.place))
        with torch.cuda.stream(aside):
            for _ in range(_CALLS_BEFORE):
                function()
        torch.cuda.current_stream(self.place).wait_stream(aside)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._memory):
            result = function()
        self._memory = graph.pool()

        def replay() -> torch.Tensor:
            graph.replay()
            return result

        return replay

    def ops(
        self, shape: AttentionShape, pools: Sequence[KvPool], layers: Sequence[LayerPlace], dtype: torch.dtype
    ) -> TritonOps:
        """See `kernels.ops.Device.ops`."""
        for pool in pools:
            if pool.block % 16 or not 16 <= pool.block <= 128:
                raise ValueError(f"block is {pool.block} tokens, on a GPU it must be a multiple of 16 up to 128")
        if shape.head_dim % 16 or shape.head_dim > 256 or shape.heads % shape.kv_heads:
            raise ValueError(f"{shape.heads} heads of {shape.head_dim} on {shape.kv_heads} are not possible on a GPU")
        return TritonOps(shape, pools, layers, dtype, self.place)

    def _placed(self, *tensors: torch.Tensor) -> list[torch.Tensor]:
        return [tensor.to(self.place) for tensor in tensors]
