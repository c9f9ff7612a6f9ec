"""From the blocks of files to linear layers, for the mixtures of formats that files have."""

from collections.abc import Iterator
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from gguf.quants import quantize

from backends.engine.errors import ModelFileError
from backends.engine.precision.build import LinearBuilder
from backends.engine.precision.linear import Linear
from backends.engine.weights.folder_source import FolderSource
from backends.engine.weights.gguf_source import GgufSource
from backends.engine.weights.source import WeightSource
from kernels.cpu import grouped
from kernels.ops import open_device
from tests.backends.engine.weights import folders, ggufs

BF16 = torch.bfloat16
INT8 = "int8-g32" if grouped.AVAILABLE else "int8"
QKV = ["layers.0.q", "layers.0.k", "layers.0.v"]


@pytest.fixture
def mixed(tmp_path: Path) -> Iterator[GgufSource]:
    """A Qwen2 with biases whose projections have the formats that a file of Q4_K_M has, and a few more."""
    content = ggufs.tensors("qwen2")
    kinds = {
        "blk.0.attn_q": "Q4_0",
        "blk.0.attn_k": "Q4_0",
        "blk.0.attn_v": "Q8_0",
        "blk.0.ffn_gate": "Q4_1",
        "blk.0.ffn_up": "Q4_0",
        "blk.1.ffn_gate": "Q8_0",
        "blk.1.ffn_up": "Q5_0",
    }
    for name, kind in kinds.items():
        values = content[f"{name}.weight"][1]
        content[f"{name}.weight"] = (kind, quantize(values, gguf.GGMLQuantizationType[kind]))
    for name in ("blk.1.attn_q", "blk.1.attn_k"):
        rows, columns = content[f"{name}.weight"][1].shape
        content[f"{name}.weight"] = ("Q4_K", ggufs.blocks("Q4_K", 5, rows, columns))
    rows, columns = content["blk.1.attn_v.weight"][1].shape
    content["blk.1.attn_v.weight"] = ("Q6_K", ggufs.blocks("Q6_K", 6, rows, columns))
    source = GgufSource(ggufs.write(tmp_path / "model.gguf", "qwen2", ggufs.NUMBERS, content))
    yield source
    source.close()


def build(source: WeightSource, precision: str, names: list[str], *, bias: bool = False, dynamic: bool = False) -> Linear:
    return LinearBuilder(source, precision, open_device(threads=1), dynamic=dynamic).build(names, bias=bias)


def error(layer: Linear, source: WeightSource, names: list[str], *, bias: bool = False) -> float:
    """Relative, of products with a few rows, against the dequantised weights."""
    weight = torch.cat([source.dense(name).double() for name in names])
    x = torch.randn(5, weight.shape[1], generator=torch.Generator().manual_seed(3)).bfloat16()
    exact = x.double() @ weight.t()
    if bias:
        exact += torch.cat([source.dense(f"{name}.bias").double() for name in names])
    # By output: a format whose numbers are small must not hide behind one whose numbers are large.
    return float(((layer(x).double() - exact).norm(dim=0) / exact.norm(dim=0)).max())


@pytest.mark.parametrize(
    ("names", "bias", "kind"),
    [
        (["layers.0.q", "layers.0.k"], True, "int4-g32"),
        (QKV, True, f"int4-g32+{INT8}"),
        (["layers.1.q", "layers.1.k", "layers.1.v"], True, f"int4-g32+{INT8}"),
        (["layers.0.gate", "layers.0.up"], False, "int4-g32"),
        (["layers.1.gate", "layers.1.up"], False, INT8),
        (["layers.1.o"], False, "bf16"),
    ],
)
def test_decoding_takes_the_blocks_of_the_file(mixed: GgufSource, names: list[str], bias: bool, kind: str) -> None:
    layer = build(mixed, "file", names, bias=bias)
    assert layer.kind == kind
    # Blocks of 4 and 8 bits are as exact as the kernels; Q5 and Q6 are rounded to 8 bits once more.
    assert error(layer, mixed, names, bias=bias) < (0.05 if "int8" in kind else 0.015)


@pytest.mark.parametrize(
    ("precision", "limit"),
    [("fp32", 0.006), ("bf16", 0.012), ("int8", 0.05), ("int4-g32", 0.4), ("int4-g64", 0.4), ("int4-g128", 0.5)],
)
def test_any_file_can_be_rounded_to_any_precision(mixed: GgufSource, precision: str, limit: float) -> None:
    layer = build(mixed, precision, QKV, bias=True)
    assert layer.kind == (INT8 if precision == "int8" else precision)
    assert error(layer, mixed, QKV, bias=True) < limit


def test_eight_bits_round_activations_only_for_many_rows(mixed: GgufSource) -> None:
    few, many = (build(mixed, "int8", QKV, dynamic=dynamic) for dynamic in (False, True))
    assert (few.kind, many.kind) == (INT8, "int8")
    assert error(few, mixed, QKV) < 0.05
    assert error(many, mixed, QKV) < 0.08


def test_blocks_of_a_file_are_not_rounded_again(mixed: GgufSource) -> None:
    blocks = mixed.int4("layers.0.gate")
    assert blocks is not None
    x = torch.eye(256, dtype=BF16)[:40]
    found = build(mixed, "int4-g32", ["layers.0.gate"])(x).float()
    exact = (blocks.codes * blocks.scales.repeat_interleave(32, 1) + blocks.minima.repeat_interleave(32, 1)).t()[:40]
    # Rounded once; torch's kernel has rounded the scales before.
    assert torch.allclose(found, exact, rtol=2**-8, atol=1e-6 if grouped.AVAILABLE else 2**-7 * float(exact.abs().max()))


@pytest.mark.skipif(not grouped.AVAILABLE, reason="torch's kernel takes scales in bfloat16")
def test_scales_that_no_kernel_holds_are_an_error_of_the_file(tmp_path: Path) -> None:
    content = ggufs.tensors("llama")
    blocks = quantize(content["blk.1.attn_output.weight"][1], gguf.GGMLQuantizationType.Q4_0)
    blocks[3, :2] = np.array([60_000], np.float16).view(np.uint8)
    content["blk.1.attn_output.weight"] = ("Q4_0", blocks)
    source = GgufSource(ggufs.write(tmp_path / "model.gguf", "llama", ggufs.NUMBERS, content))
    with pytest.raises(ModelFileError, match=r"layers\.1\.o: a scale of the weights exceeds what float16 holds"):
        build(source, "file", ["layers.1.o"])
    source.close()


def test_a_folder_of_bfloat16_decodes_in_bfloat16(tmp_path: Path) -> None:
    source = FolderSource(folders.write(tmp_path / "model", folders.tensors(BF16)))
    layer = build(source, "file", QKV)
    assert layer.kind == "bf16"
    assert error(layer, source, QKV) < 0.012
    source.close()


@pytest.mark.parametrize(
    ("precision", "nbytes"),
    [
        ("fp32", 512 * 256 * 4),
        ("bf16", 512 * 256 * 2),
        ("int8", 512 * 256 + (512 * 256 // 32 if grouped.AVAILABLE else 512) * 2),
        ("int4-g32", 512 * 256 // 2 + 512 * 256 // 32 * 4),
        ("int4-g128", 512 * 256 // 2 + 512 * 256 // 128 * 4),
    ],
)
def test_a_layer_knows_what_it_takes(mixed: GgufSource, precision: str, nbytes: int) -> None:
    assert build(mixed, precision, QKV).nbytes == nbytes
