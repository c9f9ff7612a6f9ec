"""The 4-bit formats of Hugging Face folders: what `quantization_config` says, and which tensors a matrix then consists of.

Importing this loads no torch; `backends.engine.weights.unpack` reads the tensors. A matrix here is [out, in].

Source: `QuantLinear.pack` of AutoGPTQ and GPTQModel, `WQLinear_GEMM` of AutoAWQ, `compressors/pack_quantized` and
`quantization/quant_args.py` of compressed-tensors 0.20.
"""

from dataclasses import dataclass
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Raw, Struct

from backends.engine.errors import ModelFileError
from backends.engine.names import Dimensions
from backends.gguf.errors import shown

Method = Literal["gptq", "gptq_v2", "awq", "compressed-tensors"]

WORD = 8
"""4-bit numbers in an int32."""

_BITS = 4
_INT32 = ("I32",)
_FLOATS = ("F16", "BF16", "F32")


@dataclass(frozen=True, slots=True)
class PartSpec:
    """What a part of a quantised matrix must look like."""

    shape: Dimensions
    dtypes: tuple[str, ...]
    required: bool = True


@dataclass(frozen=True, slots=True)
class Packing:
    """How a folder packs its 4-bit matrices. `group` is the number of inputs that share a scale, 0 for all of them.

    `gptq` stores zero points less one, `gptq_v2` as they are. `has_zeros` is False where the zero point is always 8.
    """

    method: Method
    group: int
    has_zeros: bool = True

    @property
    def label(self) -> str:
        """The format, for people: `GPTQ-4 g128`."""
        name = {"gptq": "GPTQ", "gptq_v2": "GPTQ", "awq": "AWQ", "compressed-tensors": "CT"}[self.method]
        return f"{name}-{_BITS}" + (f" g{self.group}" if self.group else "")

    @property
    def main(self) -> str:
        """The part by which a packed matrix is recognised."""
        return "weight_packed" if self.method == "compressed-tensors" else "qweight"

    def groups(self, inputs: int) -> int:
        """Groups of a row; the last one may be shorter."""
        return -(-inputs // self.group) if self.group else 1

    def parts(self, outputs: int, inputs: int) -> dict[str, PartSpec]:
        """The parts of a matrix, by the names of the format."""
        groups = self.groups(inputs)
        order = PartSpec((inputs,), _INT32, required=False)
        if self.method == "compressed-tensors":
            parts = {
                "weight_packed": PartSpec((outputs, inputs // WORD), _INT32),
                "weight_scale": PartSpec((outputs, groups), _FLOATS),
                "weight_shape": PartSpec((2,), ("I64", "I32")),
                "weight_g_idx": order,
            }
            return parts | ({"weight_zero_point": PartSpec((outputs // WORD, groups), _INT32)} if self.has_zeros else {})
        parts = {"qzeros": PartSpec((groups, outputs // WORD), _INT32), "scales": PartSpec((groups, outputs), _FLOATS)}
        if self.method == "awq":
            return parts | {"qweight": PartSpec((inputs, outputs // WORD), _INT32)}
        return parts | {"qweight": PartSpec((inputs // WORD, outputs), _INT32), "g_idx": order}


class _Weights(Struct, kw_only=True):
    num_bits: int = 8
    type: str = "int"
    symmetric: bool = True
    strategy: str | None = None
    group_size: Annotated[int, Meta(ge=-1, le=2**20)] | None = None


class _ConfigGroup(Struct, kw_only=True):
    weights: _Weights | None = None
    input_activations: Raw = Raw(b"null")
    format: str | None = None


class _Config(Struct, kw_only=True):
    quant_method: str = ""
    bits: int | None = None
    w_bit: int | None = None
    group_size: Annotated[int, Meta(ge=-1, le=2**20)] | None = None
    q_group_size: Annotated[int, Meta(ge=-1, le=2**20)] | None = None
    checkpoint_format: str | None = None
    format: str | None = None
    version: str | None = None
    zero_point: bool = True
    config_groups: dict[str, _ConfigGroup] = {}
    kv_cache_scheme: Raw = Raw(b"null")
    transform_config: Raw = Raw(b"null")


def parse_packing(raw: Raw) -> Packing | None:
    """Read a `quantization_config`; None where it is null.

    Raises:
        ModelFileError: it is malformed, or a format, a number of bits or a transformation that is not implemented.
    """
    try:
        config = msgspec.json.decode(raw, type=_Config | None)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise ModelFileError(f"config.json: quantization_config: {error}") from error
    if config is None:
        return None
    method, layout = config.quant_method.lower(), (config.checkpoint_format or config.format or config.version or "").lower()
    if method == "compressed-tensors":
        return _compressed_tensors(config)
    bits, size = config.bits or config.w_bit, config.group_size or config.q_group_size or 128
    group = 0 if size == -1 else size
    known = {"gptq": ("", "gptq", "gptq_v2"), "awq": ("", "gemm")}
    if method not in known:
        raise _unsupported(f"quantisation {shown(config.quant_method)}", "only gptq, awq and compressed-tensors are")
    if bits != _BITS:
        raise _unsupported(f"{method} with {bits} bits", f"only {_BITS} are")
    if layout not in known[method] or not config.zero_point:
        raise _unsupported(f"{method} in the format {shown(layout)}", f"only {' and '.join(filter(None, known[method]))} are")
    if method == "awq":
        return Packing("awq", group)
    return Packing("gptq_v2" if layout == "gptq_v2" else "gptq", group)


def _compressed_tensors(config: _Config) -> Packing:
    weights = [group.weights for group in config.config_groups.values()]
    first = weights[0] if weights else None
    formats = {group.format or config.format for group in config.config_groups.values()}
    if first is None or weights.count(first) < len(weights) or formats != {"pack-quantized"}:
        raise _unsupported("compressed-tensors", "only one scheme in the format pack-quantized is")
    if (first.num_bits, first.type) != (_BITS, "int"):
        raise _unsupported(f"compressed-tensors with {first.num_bits}-bit {shown(first.type)}", f"only {_BITS}-bit int is")
    asks = {
        "quantised activations": any(_is_set(group.input_activations) for group in config.config_groups.values()),
        "a quantised KV cache": _is_set(config.kv_cache_scheme),
        "transformations": _is_set(config.transform_config),
    }
    for what, is_wanted in asks.items():
        if is_wanted:
            raise _unsupported(f"compressed-tensors with {what}", "only packed weights are")
    if first.strategy == "channel" or first.group_size == -1:
        return Packing("compressed-tensors", 0, has_zeros=not first.symmetric)
    if first.strategy not in ("group", None) or not first.group_size:
        raise _unsupported(f"compressed-tensors with the strategy {shown(str(first.strategy))}", "only group and channel are")
    return Packing("compressed-tensors", first.group_size, has_zeros=not first.symmetric)


def _is_set(raw: Raw) -> bool:
    return bool(msgspec.json.decode(raw))


def _unsupported(what: str, instead: str) -> ModelFileError:
    return ModelFileError(f"config.json: quantization_config: {what} is not supported, {instead}")
