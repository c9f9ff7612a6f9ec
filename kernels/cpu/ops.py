"""The operators of one model on a CPU. Nothing is allocated on the way: each operator writes into a buffer of its own."""

from collections.abc import Sequence

import torch

from kernels.batch import AttentionShape, DecodeBatch, KvPool, LayerPlace, PrefillChunk
from kernels.cpu.attention import CpuDecode, CpuPrefill
from kernels.cpu.buffers import Buffers
from kernels.cpu.gated import gated_bf16, gated_f32
from kernels.cpu.launch import Launch
from kernels.cpu.norm import add_norm_bf16, add_norm_bf16_f32, add_norm_f32

_ROWS_FOR_A_TEAM = 8  # with fewer rows, waking a second thread costs more than it saves


class CpuOps:
    """See `kernels.ops.Ops`."""

    def __init__(
        self, shape: AttentionShape, pools: Sequence[KvPool], layers: Sequence[LayerPlace], dtype: torch.dtype, threads: int
    ) -> None:
        self._shape, self._pools, self._layers, self._dtype, self._threads = shape, pools, layers, dtype, threads
        self._buffers = Buffers(dtype)
        half = dtype == torch.bfloat16
        norm = add_norm_bf16 if half else add_norm_f32
        exact = add_norm_bf16_f32 if half else add_norm_f32
        gated = gated_bf16 if half else gated_f32
        self._norm, self._exact_norm, self._gated = (
            (Launch(kernel, *[0] * 8, threads=1), Launch(kernel, *[0] * 8, threads=threads)) for kernel in (norm, exact, gated)
        )
        for launch in (*self._norm, *self._exact_norm):
            launch.set(8, shape.epsilon)

    def add_norm(
        self,
        residual: torch.Tensor,
        delta: torch.Tensor | None,
        weight: torch.Tensor,
        post: torch.Tensor | None = None,
        *,
        exact: bool = False,
    ) -> torch.Tensor:
        """Add and norm; see `kernels.ops.Ops.add_norm`."""
        rows, columns = residual.shape
        launch = (self._exact_norm if exact else self._norm)[rows >= _ROWS_FOR_A_TEAM]
        out = self._buffers.take("exact" if exact else "normed", rows, columns, torch.float32 if exact else None)
        launch.arguments[1:8] = (
            residual.data_ptr(),
            0 if delta is None else delta.data_ptr(),
            0 if post is None else post.data_ptr(),
            weight.data_ptr(),
            out.data_ptr(),
            rows,
            columns,
        )
        launch()
        return out

    def gated(self, gate_up: torch.Tensor) -> torch.Tensor:
        """Gate; see `kernels.ops.Ops.gated`."""
        rows, columns = gate_up.shape[0], gate_up.shape[1] // 2
        launch = self._gated[rows >= _ROWS_FOR_A_TEAM]
        out = self._buffers.take("gated", rows, columns)
        launch.arguments[1:6] = (gate_up.data_ptr(), out.data_ptr(), rows, columns, int(self._shape.gelu))
        launch()
        return out

    def decode(self, batch: DecodeBatch) -> CpuDecode:
        """Plan; see `kernels.ops.Ops.decode`."""
        return CpuDecode(self._shape, self._pools, self._layers, batch, self._buffers, self._threads)

    def prefill(self, chunks: Sequence[PrefillChunk]) -> CpuPrefill:
        """Plan; see `kernels.ops.Ops.prefill`."""
        return CpuPrefill(self._shape, self._pools, self._layers, chunks, self._buffers, self._threads)
