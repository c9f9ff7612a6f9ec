"""GGUF files as a source of weights: names, order of rows, blocks, real models."""

import subprocess
import sys
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from gguf.quants import quantize

from backends.engine.errors import ModelFileError
from backends.engine.names import expected
from backends.engine.weights.gguf_source import GgufSource
from backends.engine.weights.source import Int4Blocks
from backends.gguf.read import read_gguf
from tests.backends.engine.weights import ggufs
from tests.backends.engine.weights.ggufs import HEAD_DIM, HEADS, HIDDEN, KV_HEADS, NUMBERS, VOCAB
from tests.models import SMOLLM2, gemma3

ARCHITECTURES = ("llama", "qwen2", "qwen3", "gemma3")


def _open(folder: Path, architecture: str, content: ggufs.Tensors, **numbers: object) -> GgufSource:
    return GgufSource(ggufs.write(folder / "model.gguf", architecture, NUMBERS | numbers, content))


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_all_weights_of_a_model_are_found(tmp_path: Path, architecture: str) -> None:
    content = ggufs.tensors(architecture, tied=False)
    source = _open(tmp_path, architecture, content)
    total = 0.0
    for name, dimensions in expected(source.shape).items():
        weight = source.dense(name)
        assert (weight.shape, weight.dtype, source.kind(name)) == (dimensions, torch.float32, "F32")
        total += float(weight.double().sum())
    assert total == pytest.approx(sum(float(data.astype(np.float64).sum()) for _, data in content.values()), abs=1e-6)
    source.close()


def _interleaved(weight: np.ndarray, heads: int) -> np.ndarray:
    """What llama.cpp's converter does to q and k of a Llama: halves of a head become neighbours."""
    halves = weight.reshape(heads, 2, HEAD_DIM // 2, *weight.shape[1:])
    return np.stack([halves[:, 0], halves[:, 1]], axis=2).reshape(weight.shape)


@pytest.mark.parametrize(("architecture", "window"), [*((name, 0) for name in ARCHITECTURES), ("llama", 8)])
def test_rows_of_queries_and_keys_are_in_neox_order(tmp_path: Path, architecture: str, window: int) -> None:
    content = ggufs.tensors(architecture)
    q, k, v = (content[f"blk.1.attn_{which}.weight"][1] for which in "qkv")
    if architecture == "llama":
        content["blk.1.attn_q.weight"] = ("F32", _interleaved(q, HEADS))
        content["blk.1.attn_k.weight"] = ("F32", _interleaved(k, KV_HEADS))
    source = GgufSource(
        ggufs.write(tmp_path / "model.gguf", architecture, NUMBERS | {"attention.sliding_window": window}, content)
    )
    assert (source.shape.architecture == "mistral") == (window > 0)
    for name, original in (("q", q), ("k", k), ("v", v)):
        assert torch.equal(source.dense(f"layers.1.{name}"), torch.from_numpy(original)), name
    source.close()


@pytest.mark.parametrize("kind", ["Q4_0", "Q4_1"])
def test_four_bit_blocks_of_a_query_matrix_are_reordered_by_row(tmp_path: Path, kind: str) -> None:
    content = ggufs.tensors()
    original = content["blk.0.attn_q.weight"][1]
    packed = quantize(_interleaved(original, HEADS), gguf.GGMLQuantizationType[kind])
    content["blk.0.attn_q.weight"] = (kind, packed)
    source = _open(tmp_path, "llama", content)
    rounded = gguf.quants.dequantize(quantize(original, gguf.GGMLQuantizationType[kind]), gguf.GGMLQuantizationType[kind])
    blocks = source.int4("layers.0.q")
    assert blocks is not None
    assert torch.equal(_weights(blocks), torch.from_numpy(rounded))
    assert torch.equal(source.dense("layers.0.q"), torch.from_numpy(rounded))
    source.close()


def _weights(blocks: Int4Blocks) -> torch.Tensor:
    codes = blocks.codes.float().view(*blocks.scales.shape, blocks.group)
    return (codes * blocks.scales[..., None] + blocks.minima[..., None]).flatten(1)


# 5000 rows of 256 columns are more than one chunk, and the last one is not full.
@pytest.mark.parametrize("kind", ["Q4_0", "Q4_1", "Q4_K", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q5_K", "Q6_K"])
def test_a_matrix_of_several_chunks_is_whole_in_every_form(tmp_path: Path, kind: str) -> None:
    rows = 5_000
    raw = ggufs.blocks(kind, 7, rows, HIDDEN)
    content = ggufs.tensors() | {"token_embd.weight": (kind, raw)}
    source = _open(tmp_path, "llama", content)
    dense = torch.from_numpy(gguf.quants.dequantize(raw, gguf.GGMLQuantizationType[kind]))
    assert source.shape.vocab == rows
    assert torch.equal(source.dense("embed"), dense)
    four, eight = source.int4("embed"), source.int8("embed")
    assert (four is not None, eight is not None) == (kind in ("Q4_0", "Q4_1", "Q4_K"), kind == "Q8_0")
    if four is not None:
        assert (four.codes.dtype, four.scales.dtype, four.group) == (torch.uint8, torch.float32, 32)
        assert int(four.codes.max()) <= 15
        assert torch.equal(_weights(four), dense)
    if eight is not None:
        assert eight.codes.dtype == torch.int8
        assert torch.equal((eight.codes.float().view(rows, -1, 32) * eight.scales[..., None]).flatten(1), dense)
    source.close()


def test_sixteen_bit_weights_keep_their_type(tmp_path: Path) -> None:
    values = ggufs.floats(3, VOCAB, HIDDEN)
    half = values.astype(np.float16)
    brain = quantize(values, gguf.GGMLQuantizationType.BF16)
    content = ggufs.tensors(tied=False) | {"token_embd.weight": ("F16", half), "output.weight": ("BF16", brain)}
    source = _open(tmp_path, "llama", content)
    assert torch.equal(source.dense("embed"), torch.from_numpy(half))
    assert torch.equal(source.dense("head"), torch.from_numpy(values).to(torch.bfloat16))
    source.close()


@pytest.mark.parametrize("kind", ["Q4_1", "Q8_0", "Q6_K", "F32", "F16"])
@pytest.mark.parametrize("damage", [b"\xff\x7f", b"\x00\xfc"], ids=["nan", "infinity"])
def test_numbers_that_are_not_finite_are_found(tmp_path: Path, kind: str, damage: bytes) -> None:
    if kind in ("F32", "F16"):
        data = ggufs.floats(1, VOCAB, HIDDEN)
        data[5, 5] = np.frombuffer(damage, np.float16)[0]
        data = data.astype(np.float16) if kind == "F16" else data
    else:
        data = ggufs.blocks(kind, 1, VOCAB, HIDDEN)
        data[5, -2 if kind == "Q6_K" else 0 :][:2] = np.frombuffer(damage, np.uint8)
    source = _open(tmp_path, "llama", ggufs.tensors() | {"token_embd.weight": (kind, data)})
    with pytest.raises(ModelFileError, match=r"^'model.gguf': tensor 'token_embd.weight' holds numbers that are not finite"):
        source.dense("embed")
    source.close()


def test_a_file_that_shrinks_while_it_is_open_is_an_error(tmp_path: Path) -> None:
    source = _open(tmp_path, "llama", ggufs.tensors())
    path = tmp_path / "model.gguf"
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size - 4096)
    last = f"layers.{ggufs.LAYERS - 1}.down"
    with pytest.raises(ModelFileError, match=r"^'model.gguf': file ends at byte"):
        source.dense(last)
    source.close()


def test_closing_twice_is_fine_and_what_was_read_stays(tmp_path: Path) -> None:
    source = _open(tmp_path, "llama", ggufs.tensors())
    weight = source.dense("embed")
    source.close()
    source.close()
    assert torch.isfinite(weight).all()


@pytest.mark.parametrize("model", ["smollm2", "gemma3"])
def test_a_real_model_reads_as_the_gguf_package_reads_it(model: str) -> None:
    path = SMOLLM2 if model == "smollm2" else gemma3()
    source = GgufSource(path)
    tensors = {tensor.name: tensor for tensor in read_gguf(path, arrays=False).tensors}
    for name, theirs in (("o", "attn_output"), ("down", "ffn_down"), ("gate", "ffn_gate"), ("v", "attn_v")):
        tensor = tensors[f"blk.3.{theirs}.weight"]
        raw = np.fromfile(path, np.uint8, tensor.nbytes, offset=tensor.offset).reshape(tensor.shape[1], -1)
        expected_weight = gguf.quants.dequantize(raw, gguf.GGMLQuantizationType(tensor.type.id))
        assert torch.equal(source.dense(f"layers.3.{name}"), torch.from_numpy(expected_weight))
    four = source.int4("layers.3.o")
    assert four is not None
    assert torch.equal(_weights(four), source.dense("layers.3.o"))
    source.close()


_PEAK = """
import sys
from pathlib import Path
import torch
from backends.engine.weights.gguf_source import GgufSource

def peak() -> int:
    return int(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1]) * 1024

torch.set_num_threads(1)
source = GgufSource(Path(sys.argv[1]))
source.dense("layers.0.down")  # whatever libraries need once
before = peak()
weight = source.dense("embed")
print(peak() - before - weight.nbytes)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_dequantising_holds_little_beside_the_result(tmp_path: Path) -> None:
    raw = np.zeros((65_536, HIDDEN // 256 * 210), np.uint8)
    content = ggufs.tensors() | {"token_embd.weight": ("Q6_K", raw)}
    path = ggufs.write(tmp_path / "model.gguf", "llama", NUMBERS, content)
    done = subprocess.run([sys.executable, "-c", _PEAK, path], capture_output=True, text=True, check=True)
    assert int(done.stdout) < raw.nbytes + 24 * 1024**2
