"""4-bit folders of GPTQ, AWQ and compressed-tensors, packed here nibble by nibble as their formats are defined."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from backends.engine.errors import ModelFileError
from backends.engine.weights.folder_source import FolderSource
from backends.engine.weights.source import Int4Blocks
from tests.backends.engine.weights import folders
from tests.backends.engine.weights.folders import Json, Tensors

MODULE = "model.layers.1.mlp.down_proj"
OUT, IN = folders.HIDDEN, folders.WIDE
_AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)


class Matrix:
    """A random quantised matrix: codes and zeros of 4 bits, scales, and the group of each column."""

    def __init__(
        self, group: int, *, order: torch.Tensor | None = None, symmetric: bool = False, shape: tuple[int, int] = (OUT, IN)
    ) -> None:
        random = torch.Generator().manual_seed(5)
        outputs, inputs = shape
        groups = -(-inputs // group)
        self.codes = torch.randint(0, 16, shape, generator=random)
        self.zeros = torch.randint(1, 16, (outputs, groups), generator=random)
        if symmetric:
            self.zeros = torch.full_like(self.zeros, 8)
        self.scales = (torch.rand((outputs, groups), generator=random) + 0.01).to(torch.float16)
        self.order = torch.arange(inputs) // group if order is None else order

    @property
    def weight(self) -> torch.Tensor:
        return (self.codes - self.zeros[:, self.order]).float() * self.scales.float()[:, self.order]


def _words(numbers: torch.Tensor, places: tuple[int, ...] = tuple(range(8))) -> torch.Tensor:
    """Eight neighbours of the last dimension in an int32; `places[i]` is the one in bits 4 * i."""
    eights = numbers.reshape(*numbers.shape[:-1], -1, 8)
    words = sum(eights[..., place] << 4 * i for i, place in enumerate(places))
    return torch.where(words >= 2**31, words - 2**32, words).to(torch.int32)


def _gptq(matrix: Matrix, less: int = 1) -> Tensors:
    zeros = (matrix.zeros - less) % 16
    return {
        "qweight": _words(matrix.codes).t(),
        "qzeros": _words(zeros.t()),
        "scales": matrix.scales.t(),
        "g_idx": matrix.order.to(torch.int32),
    }


def _awq(matrix: Matrix) -> Tensors:
    return {
        "qweight": _words(matrix.codes.t(), _AWQ_ORDER),
        "qzeros": _words(matrix.zeros.t(), _AWQ_ORDER),
        "scales": matrix.scales.t(),
    }


def _compressed(matrix: Matrix, *, zeros: bool = True) -> Tensors:
    shape = torch.tensor(matrix.codes.shape)
    parts = {"weight_packed": _words(matrix.codes), "weight_scale": matrix.scales, "weight_shape": shape}
    return parts | ({"weight_zero_point": _words(matrix.zeros.t()).t()} if zeros else {})


def _scheme(**weights: Any) -> Json:
    arguments = {"num_bits": 4, "type": "int", "symmetric": False, "strategy": "group", "group_size": 32} | weights
    group = {"targets": ["Linear"], "weights": arguments, "input_activations": None}
    return {"quant_method": "compressed-tensors", "format": "pack-quantized", "config_groups": {"group_0": group}}


def _source(folder: Path, parts: Tensors, quantization: Json) -> FolderSource:
    """A model with one packed matrix in it."""
    content = {name: tensor for name, tensor in folders.tensors().items() if not name.startswith(MODULE)}
    content |= {f"{MODULE}.{part}": tensor for part, tensor in parts.items()}
    return FolderSource(folders.write(folder, content, folders.config(quantization_config=quantization)))


def _weights(blocks: Int4Blocks) -> torch.Tensor:
    codes = blocks.codes.float().view(*blocks.scales.shape, blocks.group)
    return (codes * blocks.scales[..., None] + blocks.minima[..., None]).flatten(1)


Case = tuple[Callable[[], Matrix], Callable[[Matrix], Tensors], Json, str, int]
CASES: dict[str, Case] = {
    "gptq": (
        lambda: Matrix(128),
        _gptq,
        {"quant_method": "gptq", "bits": 4, "group_size": 128, "sym": False},
        "GPTQ-4 g128",
        128,
    ),
    "gptq, version 2": (
        lambda: Matrix(64),
        lambda matrix: _gptq(matrix, less=0),
        {"quant_method": "gptq", "bits": 4, "group_size": 64, "checkpoint_format": "gptq_v2"},
        "GPTQ-4 g64",
        64,
    ),
    "gptq without order": (
        lambda: Matrix(32),
        lambda matrix: {name: part for name, part in _gptq(matrix).items() if name != "g_idx"},
        {"quant_method": "gptq", "bits": 4, "group_size": 32},
        "GPTQ-4 g32",
        32,
    ),
    "gptq by row": (lambda: Matrix(IN), _gptq, {"quant_method": "gptq", "bits": 4, "group_size": -1}, "GPTQ-4", 128),
    "awq": (
        lambda: Matrix(64),
        _awq,
        {"quant_method": "awq", "bits": 4, "group_size": 64, "zero_point": True, "version": "gemm"},
        "AWQ-4 g64",
        64,
    ),
    "awq of llm-awq": (
        lambda: Matrix(128),
        _awq,
        {"quant_method": "AWQ", "w_bit": 4, "q_group_size": 128},
        "AWQ-4 g128",
        128,
    ),
    "compressed": (lambda: Matrix(32), _compressed, _scheme(), "CT-4 g32", 32),
    "compressed, symmetric": (
        lambda: Matrix(128, symmetric=True),
        lambda matrix: _compressed(matrix, zeros=False),
        _scheme(symmetric=True, group_size=128),
        "CT-4 g128",
        128,
    ),
    "compressed by row": (
        lambda: Matrix(IN),
        _compressed,
        _scheme(strategy="channel", group_size=None),
        "CT-4",
        128,
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_packed_matrix_is_the_same_dense_and_in_blocks(tmp_path: Path, case: str) -> None:
    make, pack, quantization, kind, group = CASES[case]
    matrix = make()
    source = _source(tmp_path, pack(matrix), quantization)
    assert source.kind("layers.1.down") == kind
    dense, blocks = source.dense("layers.1.down"), source.int4("layers.1.down")
    assert dense.dtype == torch.float32
    assert torch.equal(dense, matrix.weight)
    assert blocks is not None
    assert (blocks.group, blocks.codes.dtype, blocks.scales.dtype) == (group, torch.uint8, torch.float32)
    assert torch.equal(blocks.codes.long(), matrix.codes)
    assert torch.equal(_weights(blocks), matrix.weight)
    # What is not packed is read as in any other folder.
    assert (source.kind("layers.0.down"), source.int4("layers.0.down")) == ("F32", None)
    source.close()


@pytest.mark.parametrize("case", ["gptq without order", "awq of llm-awq", "compressed"])
def test_a_matrix_of_several_chunks_is_whole(tmp_path: Path, case: str) -> None:
    vocab = 20_008  # the last chunk is not full
    _, pack, quantization, _, _ = CASES[case]
    matrix = Matrix(32, shape=(vocab, folders.HIDDEN))
    quantization = quantization | ({"q_group_size": 32} if "awq" in case else {})
    embedding = {"model.embed_tokens.weight": torch.zeros(vocab, folders.HIDDEN)}
    content = folders.tensors() | embedding | {f"lm_head.{part}": tensor for part, tensor in pack(matrix).items()}
    settings = folders.config(quantization_config=quantization, vocab_size=vocab, tie_word_embeddings=False)
    source = FolderSource(folders.write(tmp_path, content, settings))
    blocks = source.int4("head")
    assert blocks is not None
    assert torch.equal(source.dense("head"), matrix.weight)
    assert torch.equal(_weights(blocks), matrix.weight)
    source.close()


@pytest.mark.parametrize("pack", ["gptq", "compressed"])
def test_columns_ordered_by_activation_are_dense_only(tmp_path: Path, pack: str) -> None:
    order = torch.randperm(IN, generator=torch.Generator().manual_seed(1)) // 64
    matrix = Matrix(64, order=order)
    if pack == "gptq":
        parts, quantization = _gptq(matrix), {"quant_method": "gptq", "bits": 4, "group_size": 64, "desc_act": True}
    else:
        parts, quantization = _compressed(matrix) | {"weight_g_idx": order.to(torch.int32)}, _scheme(group_size=64)
    source = _source(tmp_path, parts, quantization)
    assert torch.equal(source.dense("layers.1.down"), matrix.weight)
    assert source.int4("layers.1.down") is None
    source.close()


def test_a_group_that_no_kernel_has_is_dense_only(tmp_path: Path) -> None:
    matrix = Matrix(16)
    source = _source(tmp_path, _gptq(matrix), {"quant_method": "gptq", "bits": 4, "group_size": 16})
    assert torch.equal(source.dense("layers.1.down"), matrix.weight)
    assert source.int4("layers.1.down") is None
    source.close()


def test_a_zero_point_of_zero_survives_the_one_that_is_taken_away_over_whole_words(tmp_path: Path) -> None:
    matrix = Matrix(64)
    matrix.zeros[3:6] = 0
    parts = _gptq(matrix, less=0)
    parts["qzeros"] -= 0x11111111
    source = _source(tmp_path, parts, {"quant_method": "gptq", "bits": 4, "group_size": 64, "sym": False})
    assert torch.equal(source.dense("layers.1.down"), matrix.weight)
    source.close()


def test_the_packing_of_compressed_tensors_is_that_of_its_library(tmp_path: Path) -> None:
    # `pack_to_int32(torch.arange(-8, 8, dtype=torch.int8).repeat(8, 1), 4)` of compressed-tensors 0.20, and with packed_dim=0.
    matrix = Matrix(32)
    matrix.codes = torch.arange(16).repeat(OUT, IN // 16)
    parts = _compressed(matrix)
    assert parts["weight_packed"][0, :2].tolist() == [0x76543210, 0xFEDCBA98 - 2**32]
    matrix.zeros = torch.arange(16).repeat(OUT // 16).unsqueeze(1).expand(-1, IN // 32)
    assert _compressed(matrix)["weight_zero_point"][:2, 0].tolist() == [0x76543210, 0xFEDCBA98 - 2**32]


def test_biases_that_are_zero_are_forgiven_and_others_are_not(tmp_path: Path) -> None:
    quantization: Json = {"quant_method": "gptq", "bits": 4, "group_size": 64}
    parts = _gptq(Matrix(64)) | {"bias": torch.zeros(OUT, dtype=torch.float16)}
    source = _source(tmp_path / "zero", parts, quantization)
    source.dense("layers.1.down")
    source.close()
    parts["bias"][7] = 1
    source = _source(tmp_path / "one", parts, quantization)
    for read in (source.dense, source.int4):
        with pytest.raises(ModelFileError, match=rf"tensor '{MODULE}.bias' is a bias, which this architecture does not have"):
            read("layers.1.down")
    source.close()


@pytest.mark.parametrize(
    ("part", "value", "reason"),
    [
        ("scales", float("nan"), "holds numbers that are not finite"),
        ("scales", float("inf"), "holds numbers that are not finite"),
        ("g_idx", 2, "holds group 2, but there are 2"),
        ("g_idx", -1, "holds group"),
    ],
)
def test_damaged_parts_are_named(tmp_path: Path, part: str, value: float, reason: str) -> None:
    parts = _gptq(Matrix(64))
    parts[part][..., 5] = value
    source = _source(tmp_path, parts, {"quant_method": "gptq", "bits": 4, "group_size": 64})
    for read in (source.dense, source.int4):
        with pytest.raises(ModelFileError, match=rf"^'model.safetensors': tensor '{MODULE}.{part}' {reason}"):
            read("layers.1.down")
    source.close()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"qzeros": None, "scales": None}, rf"2 tensors are missing, the first is '{MODULE}.qzeros'"),
        ({"qweight": torch.zeros(IN // 4, OUT, dtype=torch.int32)}, r"has shape \[32, 64\], expected \[16, 64\]"),
        ({"scales": torch.zeros(4, OUT, dtype=torch.float16)}, r"has shape \[4, 64\], expected \[2, 64\]"),
        ({"scales": torch.zeros(2, OUT, dtype=torch.int32)}, "is I32, expected F16 or BF16 or F32"),
        ({"weight_packed": torch.zeros(1)}, rf"unknown to this architecture, the first is '{MODULE}.weight_packed'"),
    ],
)
def test_parts_must_be_complete_and_of_the_right_shape(tmp_path: Path, change: dict[str, Any], reason: str) -> None:
    parts = {name: part for name, part in (_gptq(Matrix(64)) | change).items() if part is not None}
    with pytest.raises(ModelFileError, match=reason):
        _source(tmp_path, parts, {"quant_method": "gptq", "bits": 4, "group_size": 64})


def test_a_stored_shape_that_is_another_is_named(tmp_path: Path) -> None:
    parts = _compressed(Matrix(32)) | {"weight_shape": torch.tensor([OUT, IN - 1])}
    source = _source(tmp_path, parts, _scheme())
    with pytest.raises(ModelFileError, match=r"tensor 'model.layers.1.mlp.down_proj.weight_shape' is not \[64, 128\]"):
        source.dense("layers.1.down")
    source.close()


@pytest.mark.parametrize(
    ("quantization", "reason"),
    [
        (
            {"quant_method": "bitsandbytes"},
            "'bitsandbytes' is not supported, only gptq, awq and compressed-tensors are",
        ),
        ({"quant_method": "gptq", "bits": 8, "group_size": 64}, "gptq with 8 bits is not supported, only 4 are"),
        ({"quant_method": "gptq", "bits": 4, "checkpoint_format": "marlin"}, "gptq in the format 'marlin' is not supported"),
        ({"quant_method": "awq", "bits": 4, "version": "gemv"}, "awq in the format 'gemv' is not supported, only gemm are"),
        ({"quant_method": "awq", "bits": 4, "version": "gemm", "zero_point": False}, "is not supported"),
        (_scheme(num_bits=8), "8-bit 'int' is not supported, only 4-bit int is"),
        (_scheme(type="float"), "4-bit 'float' is not supported"),
        (_scheme(strategy="tensor"), "the strategy 'tensor' is not supported"),
        (_scheme() | {"format": "int-quantized"}, "only one scheme in the format pack-quantized is"),
        (_scheme() | {"kv_cache_scheme": {"num_bits": 8}}, "a quantised KV cache is not supported"),
        (_scheme() | {"transform_config": {"config_groups": {"R1": {}}}}, "transformations is not supported"),
        ({"quant_method": "gptq", "bits": 4, "group_size": -7}, "Expected `int` >= -1"),
    ],
)
def test_a_quantisation_without_code_is_named(tmp_path: Path, quantization: Json, reason: str) -> None:
    with pytest.raises(ModelFileError, match=rf"^config.json: quantization_config: .*{reason}"):
        _source(tmp_path, {}, quantization)
