"""What is said about a GGUF file before any tensor is read: its shape, and why it cannot be loaded."""

import math
import struct
from pathlib import Path

import numpy as np
import pytest

from backends.engine.errors import ModelFileError
from backends.engine.names import expected
from backends.engine.shape import RopeShape
from backends.engine.shapes.llama3_rope import llama3_divisor, recognise_llama3
from backends.engine.weights.gguf_inventory import gguf_inventory
from backends.engine.weights.inventory import Inventory
from tests.backends.engine.weights import ggufs
from tests.backends.engine.weights.ggufs import HIDDEN, NUMBERS, VOCAB
from tests.models import SMOLLM2, gemma3


def _take(folder: Path, architecture: str = "llama", content: ggufs.Tensors | None = None, **numbers: object) -> Inventory:
    chosen = {name.replace("__", "."): value for name, value in numbers.items()}
    kept = {name: value for name, value in (NUMBERS | chosen).items() if value is not None}
    path = ggufs.write(folder / "model.gguf", architecture, kept, content or ggufs.tensors(architecture))
    return gguf_inventory(path)


def test_the_numbers_of_a_llama(tmp_path: Path) -> None:
    inventory = _take(tmp_path)
    shape = inventory.shape
    assert (shape.architecture, shape.vocab, shape.hidden, shape.intermediate) == ("llama", VOCAB, HIDDEN, 512)
    assert (shape.heads, shape.kv_heads, shape.head_dim, shape.group, shape.context) == (4, 2, 64, 2, 128)
    assert (shape.norm_eps, shape.query_scale) == (pytest.approx(1e-5), 0.125)
    assert (shape.activation, shape.embedding_scale, shape.tied) == ("silu", 1.0, True)
    assert {layer.rope for layer in shape.layers} == {RopeShape(base=50_000.0)}
    assert inventory.parameters == sum(math.prod(dimensions) for dimensions in expected(shape).values())
    assert inventory.bytes_by_kind == {"F32": inventory.parameters * 4}


def test_without_keys_the_head_dimension_and_the_base_are_those_of_llama_cpp(tmp_path: Path) -> None:
    shape = _take(tmp_path, attention__key_length=None, attention__value_length=None, rope__freq_base=None).shape
    assert (shape.head_dim, shape.layers[0].rope.base) == (64, 10_000.0)


def test_a_window_on_a_llama_is_a_mistral(tmp_path: Path) -> None:
    shape = _take(tmp_path, attention__sliding_window=32).shape
    assert (shape.architecture, {layer.window for layer in shape.layers}) == ("mistral", {32})


@pytest.mark.parametrize(
    ("numbers", "windows"),
    [
        ({"block_count": 2}, [16, 16]),
        ({"attention__sliding_window_pattern": 2}, [16, 0]),
        ({"attention__sliding_window_pattern": 0}, [16, 16]),
        ({"attention__sliding_window_pattern": 1}, [0, 0]),
        ({"attention__sliding_window_pattern": [False, True]}, [0, 16]),
        ({"attention__sliding_window": None}, [0, 0]),
    ],
)
def test_local_layers_of_gemma_have_their_own_rope(tmp_path: Path, numbers: dict[str, object], windows: list[int]) -> None:
    scaled: dict[str, object] = {"rope__scaling__type": "linear", "rope__scaling__factor": 8.0}
    shape = _take(tmp_path, "gemma3", **({"attention__sliding_window": 16} | scaled | numbers)).shape
    assert [layer.window for layer in shape.layers] == windows
    for layer in shape.layers:
        assert layer.rope == (RopeShape(base=10_000.0) if layer.window else RopeShape(base=50_000.0, factor=8.0))


def test_gemma_scales_embeddings_and_queries(tmp_path: Path) -> None:
    shape = _take(tmp_path, "gemma3", final_logit_softcapping=30.0, rope__freq_base_swa=5_000.0).shape
    assert (shape.embedding_scale, shape.query_scale, shape.logit_softcap) == (16.0, 0.125, 30.0)
    assert (shape.qk_norm, shape.post_norms, shape.activation) == (True, True, "gelu_tanh")


def test_the_27b_gemma_scales_queries_by_another_width() -> None:
    # Not by the width of its heads (128), but by hidden size over heads (5376 / 32): `src/models/gemma3.cpp` of llama.cpp.
    from backends.engine.shapes.of_gguf import shape_of_gguf
    from backends.gguf.files import FileIdentity
    from backends.gguf.model import GgufFile, Shard

    numbers = NUMBERS | {"block_count": 62, "embedding_length": 5376, "attention.head_count": 32, "attention.key_length": 128}
    file = GgufFile(
        version=3,
        alignment=32,
        metadata={"general.architecture": "gemma3"}
        | {f"gemma3.{name}": value for name, value in (numbers | {"attention.value_length": 128}).items()},
        value_types={},
        tensors=(),
        shards=(Shard(Path("27b.gguf"), FileIdentity(0, 0, 0, 0), 0),),
    )
    assert shape_of_gguf(file, vocab=8, tied=True).query_scale == 168**-0.5


def test_divisors_of_llama_3_are_read_and_recognised(tmp_path: Path) -> None:
    scaling = RopeShape(base=50_000.0, factor=32.0, low=1.0, high=4.0, original_context=8_192)
    divisors = np.array([llama3_divisor(scaling, pair, 64) for pair in range(32)], np.float32)
    content = ggufs.tensors() | {"rope_freqs.weight": ("F32", divisors)}
    rope = _take(tmp_path, content=content).shape.layers[1].rope
    assert rope.divisors == tuple(divisors.tolist())
    assert 1.0 == rope.divisors[0] < rope.divisors[-1] == 32.0
    assert recognise_llama3(rope) == scaling
    other = RopeShape(base=50_000.0, divisors=(1.0, 2.0, 3.0))
    assert recognise_llama3(other) is other


@pytest.mark.parametrize(
    ("model", "architecture", "quantization"), [("smollm2", "llama", "Q4_1"), ("gemma3", "gemma3", "Q4_K_M")]
)
def test_real_models(model: str, architecture: str, quantization: str) -> None:
    path = SMOLLM2 if model == "smollm2" else gemma3()
    inventory = gguf_inventory(path)
    assert (inventory.shape.architecture, inventory.quantization) == (architecture, quantization)
    assert inventory.size_bytes == path.stat().st_size
    if model == "gemma3":
        assert [i for i, layer in enumerate(inventory.shape.layers) if not layer.window] == [5, 11, 17]
        assert {layer.rope.base for layer in inventory.shape.layers if layer.window} == {10_000.0}


@pytest.mark.parametrize(
    ("numbers", "reason"),
    [
        ({"expert_count": 8, "expert_used_count": 2}, "llama.expert_count is 8, which is not supported"),
        ({"attention__kv_lora_rank": 512}, "llama.attention.kv_lora_rank is 512"),
        ({"attention__causal": False}, "llama.attention.causal is False"),
        ({"logit_scale": 0.5}, "llama.logit_scale is 0.5"),
        ({"rope__scaling__type": "yarn"}, "RoPE scaling 'yarn' is not supported"),
        ({"rope__dimension_count": 32}, "RoPE over 32 of 64 dimensions of a head is not supported"),
        ({"attention__value_length": 128}, "heads are 64 wide for keys and 128 for values"),
        ({"attention__head_count_kv": 3}, "not a multiple of"),
        ({"attention__head_count_kv": [2, 1]}, "expected one number above 0 for all layers"),
        ({"attention__layer_norm_rms_epsilon": None}, "layer_norm_rms_epsilon is missing or 0"),
        ({"rope__freq_base": math.inf}, "rope.freq_base is inf"),
        ({"pooling_type": 1}, "llama.pooling_type is 1"),
    ],
)
def test_what_is_not_implemented_is_named(tmp_path: Path, numbers: dict[str, object], reason: str) -> None:
    with pytest.raises(ModelFileError, match=r"^'model.gguf': ") as caught:
        _take(tmp_path, **numbers)
    assert reason in str(caught.value)


@pytest.mark.parametrize("architecture", ["mamba", "qwen2moe", "deepseek2", "nonsense"])
def test_an_unknown_architecture_is_named(tmp_path: Path, architecture: str) -> None:
    numbers = {"attention.head_count": 0} if architecture == "mamba" else {}
    path = ggufs.write(tmp_path / "model.gguf", architecture, NUMBERS | numbers, ggufs.tensors())
    with pytest.raises(
        ModelFileError, match=f"architecture '{architecture}' is not supported, only gemma3, llama, qwen2, qwen3"
    ):
        gguf_inventory(path)


def test_a_window_of_a_qwen_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match=r"qwen3.attention.sliding_window is 64, which is not supported"):
        _take(tmp_path, "qwen3", attention__sliding_window=64)


def test_missing_tensors_are_counted(tmp_path: Path) -> None:
    content = ggufs.tensors()
    del content["blk.0.attn_q.weight"], content["blk.1.ffn_up.weight"]
    with pytest.raises(ModelFileError, match=r"2 tensors are missing, the first is 'blk.0.attn_q.weight'"):
        _take(tmp_path, content=content)


def test_a_tensor_without_a_place_is_named(tmp_path: Path) -> None:
    content = ggufs.tensors() | {"blk.0.attn_output.bias": ("F32", ggufs.floats(0, HIDDEN))}
    with pytest.raises(
        ModelFileError, match=r"a tensor is unknown to this architecture, the first is 'blk.0.attn_output.bias'"
    ):
        _take(tmp_path, content=content)


def test_a_wrong_shape_is_named(tmp_path: Path) -> None:
    content = ggufs.tensors() | {"blk.1.attn_k.weight": ("F32", ggufs.floats(0, 96, HIDDEN))}
    with pytest.raises(ModelFileError, match=r"tensor 'blk.1.attn_k.weight' has shape \[96, 256\], expected \[128, 256\]"):
        _take(tmp_path, content=content)


def test_a_storage_format_without_code_is_named(tmp_path: Path) -> None:
    content = ggufs.tensors() | {"token_embd.weight": ("IQ4_NL", np.zeros((VOCAB, HIDDEN // 32 * 18), np.uint8))}
    with pytest.raises(ModelFileError, match=r"tensor 'token_embd.weight' is stored as IQ4_NL, which is not supported"):
        _take(tmp_path, content=content)


@pytest.mark.parametrize("value", [math.nan, 0.0, -1.0])
def test_divisors_must_be_finite_and_positive(tmp_path: Path, value: float) -> None:
    content = ggufs.tensors() | {"rope_freqs.weight": ("F32", np.array([1.0] * 31 + [value], np.float32))}
    with pytest.raises(ModelFileError, match=r"tensor 'rope_freqs.weight' holds numbers that are not finite and positive"):
        _take(tmp_path, content=content)


def test_as_many_divisors_as_pairs(tmp_path: Path) -> None:
    content = ggufs.tensors() | {"rope_freqs.weight": ("F32", np.ones(16, np.float32))}
    with pytest.raises(ModelFileError, match=r"rope_freqs.weight has 16 elements, expected 32"):
        _take(tmp_path, content=content)


def test_a_truncated_file_is_refused_before_a_tensor_is_read(tmp_path: Path) -> None:
    path = ggufs.write(tmp_path / "model.gguf", "llama", NUMBERS, ggufs.tensors())
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size - 4096)
    with pytest.raises(ModelFileError, match=r"^'model.gguf': tensor .* is it truncated"):
        gguf_inventory(path)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "a GGUF header needs at least"),
        (b"PK\3\4" + b"\0" * 64, "magic is b'PK"),
        (b"GGUF" + struct.pack("<IQQ", 3, 1, 2**60), "is above the limit"),
    ],
)
def test_what_is_no_gguf_file_is_refused(tmp_path: Path, content: bytes, reason: str) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(content)
    with pytest.raises(ModelFileError, match=reason):
        gguf_inventory(path)
