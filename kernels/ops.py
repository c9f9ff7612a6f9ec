"""The one door to the operators: what an engine asks of a device, and who does it there.

A forward pass is: norm, queries and keys and values, attention, output, norm, gate and up, gated, down. A device makes the
products of the layers, each bound to its weights, and the operators between them. Attention is planned once for a batch and
then run for every layer.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

import torch

from kernels.batch import AttentionShape, DecodeBatch, KvPool, LayerPlace, PrefillChunk
from kernels.cpu.device import CpuDevice
from kernels.problems import DeviceError


class Attention(Protocol):
    """A planned batch."""

    def __call__(self, qkv: torch.Tensor, layer: int) -> torch.Tensor:
        """Norm and rotate queries and keys, write keys and values into the cache, and attend.

        Args:
            qkv: [rows, (heads + 2 * kv_heads) * head_dim], contiguous; overwritten.

        Returns:
            [rows, heads * head_dim], valid until the next call.
        """
        ...


class Ops(Protocol):
    """The operators of one model on one device. Activations are of one type throughout; the residual stream is float32."""

    def add_norm(
        self,
        residual: torch.Tensor,
        delta: torch.Tensor | None,
        weight: torch.Tensor,
        post: torch.Tensor | None = None,
        *,
        exact: bool = False,
    ) -> torch.Tensor:
        """Add `delta` to the residual stream in place, then norm it (Zhang and Sennrich, 2019, equation 4).

        Args:
            residual: [rows, hidden] float32.
            delta: [rows, hidden], or None for the first norm of all.
            weight: [hidden] float32.
            post: [hidden] float32: `delta` is normed with it before it is added.
            exact: return float32 instead of the activations' type.

        Returns:
            [rows, hidden], valid until the next call.
        """
        ...

    def gated(self, gate_up: torch.Tensor) -> torch.Tensor:
        """Return activation(gate) * up, [rows, intermediate], from [rows, 2 * intermediate]; valid until the next call."""
        ...

    def decode(self, batch: DecodeBatch) -> Attention:
        """Plan attention of single tokens. Their bits do not depend on what else is in the batch."""
        ...

    def prefill(self, chunks: Sequence[PrefillChunk]) -> Attention:
        """Plan attention of parts of prompts. Their rows fill the batch, in order."""
        ...


class Product(Protocol):
    """A matrix product, bound to its weights. On a CPU a row has the same bits beside any others, but for float32."""

    @property
    def nbytes(self) -> int:
        """What the weights take."""
        ...

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Multiply: [rows, in] to [rows, out], both contiguous and of one type."""
        ...


class Device(Protocol):
    """Makes products and operators. Weights may be anywhere; a product keeps its own where it computes.

    The caches and the vectors of a model, hidden states and logits are at `place`. What describes a batch is on the host.
    """

    @property
    def place(self) -> torch.device:
        """Where tensors are that operators read and write."""
        ...

    @property
    def name(self) -> str:
        """What computes, for people."""
        ...

    def memory_for_cache(self) -> int:
        """Bytes that a cache of keys and values may take, now."""
        ...

    @property
    def block(self) -> int:
        """Tokens of a block of the cache that suit it."""
        ...

    @property
    def captures(self) -> bool:
        """Whether `capture` saves time."""
        ...

    @property
    def half(self) -> torch.dtype:
        """The type of activations of 16 bits."""
        ...

    @property
    def has_fast_bf16(self) -> bool:
        """Whether bfloat16 is multiplied faster than float32."""
        ...

    @property
    def has_fp8(self) -> bool:
        """Whether 8-bit floating point is multiplied and stored."""
        ...

    @property
    def int8_group(self) -> int:
        """Columns that share a scale of 8-bit weights, in products of few rows: 32, or 0 for a whole row."""
        ...

    def dense(self, weight: torch.Tensor, bias: torch.Tensor | None) -> Product:
        """Multiply with [out, in] in bfloat16 or float32, and add [out] float32; activations may be of another type."""
        ...

    def int4(
        self, codes: torch.Tensor, scales: torch.Tensor, minima: torch.Tensor, group: int, bias: torch.Tensor | None
    ) -> Product:
        """Multiply bfloat16 with `codes * scales + minima`.

        Args:
            codes: [out, in] uint8, 0 to 15, `in` a multiple of `group`; activations may have fewer columns.
            scales, minima: [out, in / group] float32.
            group: 32, 64 or 128 columns.

        Raises:
            ValueError: a scale is too large for the format that kernels keep it in.
        """
        ...

    def int8(self, codes: torch.Tensor, scales: torch.Tensor, bias: torch.Tensor | None) -> Product:
        """Multiply bfloat16 with `codes * scales`, for few rows.

        Args:
            codes: [out, in] int8.
            scales: [out, in / int8_group], or [out]; float32.

        Raises:
            ValueError: a scale is too large for the format that kernels keep it in.
        """
        ...

    def int8_dynamic(self, codes: torch.Tensor, scales: torch.Tensor, bias: torch.Tensor | None) -> Product:
        """Multiply with `codes * scales`, codes [out, in] int8 and scales [out], after rounding activations to 8 bits too."""
        ...

    def fp8(self, weight: torch.Tensor, bias: torch.Tensor | None) -> Product:
        """Multiply with [out, in], after rounding weights and activations to float8_e4m3fn with a scale for each row.

        Raises:
            ValueError: the device has no such products, or a size is no multiple of 16.
        """
        ...

    def dense_logits(self, weight: torch.Tensor) -> Product:
        """Multiply float32 with [vocab, in] in bfloat16 or float32, to float32."""
        ...

    def int8_logits(self, codes: torch.Tensor, scales: torch.Tensor) -> Product:
        """Multiply float32 with `codes * scales`, [vocab, in] int8 and [vocab, in / 32], to float32."""
        ...

    def capture(self, function: Callable[[], torch.Tensor]) -> Callable[[], torch.Tensor]:
        """Record what a function launches; calling what is returned launches that again, on the same tensors.

        The function must not look at a number in a tensor. It is called several times here, and never again.
        """
        ...

    def ops(self, shape: AttentionShape, pools: Sequence[KvPool], layers: Sequence[LayerPlace], dtype: torch.dtype) -> Ops:
        """Make the operators of one model.

        Args:
            dtype: of activations: `half` or float32.

        Raises:
            ValueError: the model's shape is not possible.
        """
        ...


def open_device(name: str = "cpu", *, threads: int) -> Device:
    """Open a device.

    Args:
        name: `cpu`; `cuda`, the first GPU that torch sees; `auto`, that GPU if there is one, else the CPU; or `interpreter`:
            the GPU's kernels on the CPU in Triton's interpreter, which is for tests and thousands of times slower.
        threads: at most so many, on a CPU.

    Raises:
        DeviceError: there is no such GPU, or it is too old, or Triton is not installed.
    """
    if name == "cpu" or (name == "auto" and not torch.cuda.is_available()):
        return CpuDevice(threads)
    try:
        from kernels.gpu.device import open_gpu  # CPUs do without Triton
    except ModuleNotFoundError as error:
        if error.name != "triton":
            raise
        raise DeviceError(f"device = {name!r} needs the package triton: pip install 'baton-llm[cuda]'") from error
    return open_gpu("cuda" if name == "auto" else name)
