"""Headers that are well formed but would make native code abort, divide by zero or read where it must not."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from backends.gguf.architectures import ARCHITECTURES
from backends.gguf.errors import GgufError
from backends.gguf.kinds import Kind
from backends.gguf.read import Guard, read_gguf
from tests.backends.gguf.build import (
    F32,
    TOKENS,
    Gguf,
    Tensor,
    numbers,
    scalar,
    small_adapter,
    small_model,
    small_projector,
    text,
    texts,
)


def _refusal(tmp_path: Path, model: Gguf, kind: Kind = "model") -> str:
    path = tmp_path / "model.gguf"
    path.write_bytes(model.to_bytes())
    with pytest.raises(GgufError) as caught:
        read_gguf(path, kind=kind)
    return str(caught.value)


def _u32(value: int) -> bytes:
    return scalar("u32", value)


NUMBERS = {
    "block_count 0": ({"llama.block_count": _u32(0)}, "llama.block_count is 0, expected 1 to 512"),
    "block_count 100000": ({"llama.block_count": _u32(100_000)}, "llama.block_count is 100,000, expected 1 to 512"),
    "block_count text": ({"llama.block_count": text("2")}, "llama.block_count is of type str, expected an integer"),
    "block_count bool": ({"llama.block_count": scalar("bool", 1)}, "llama.block_count is of type bool, expected an integer"),
    "context_length 0": ({"llama.context_length": _u32(0)}, "llama.context_length is 0"),
    "context_length 2^31": ({"llama.context_length": _u32(2**31)}, "llama.context_length is 2,147,483,648, expected 1 to"),
    "embedding_length 0": ({"llama.embedding_length": _u32(0)}, "llama.embedding_length is 0"),
    "embedding_length negative": ({"llama.embedding_length": scalar("i32", -1)}, "llama.embedding_length is -1"),
    "head_count 0": ({"llama.attention.head_count": _u32(0)}, "head_count is 0 in every layer"),
    "head_count float": ({"llama.attention.head_count": scalar("f32", 4)}, "head_count is of type f32, expected an integer"),
    "heads of 3 layers": (
        {"llama.attention.head_count": numbers("u32", [4] * 3)},
        "head_count has 3 entries, but the model has 2",
    ),
    "heads as floats": ({"llama.attention.head_count": numbers("f32", [4, 4])}, "is of type [f32], expected [u32] or [i32]"),
    "kv heads 3 of 4": (
        {"llama.attention.head_count_kv": _u32(3)},
        "layer 0 has 4 heads, not a multiple of its 3 key/value heads",
    ),
    "key_length 0": ({"llama.attention.key_length": _u32(0)}, "llama.attention.key_length is 0"),
    "feed forward": ({"llama.feed_forward_length": numbers("i32", [64, -1])}, "feed_forward_length[1] is -1"),
    "pooling 9": ({"llama.pooling_type": _u32(9)}, "llama.pooling_type is 9, expected 0 to 4"),
    "nextn": ({"llama.nextn_predict_layers": _u32(3)}, "llama.nextn_predict_layers is 3, expected 0 to 2"),
    "rope scaling": ({"llama.rope.scaling.type": text("magic")}, "llama.rope.scaling.type is 'magic', which is no"),
    "experts 1025": ({"llama.expert_count": _u32(1025)}, "llama.expert_count is 1,025, expected 0 to 1,024"),
    "experts unused": ({"llama.expert_count": _u32(8)}, "llama.expert_used_count is 0 of 8 experts"),
    "experts overused": ({"llama.expert_used_count": _u32(2)}, "llama.expert_used_count is 2 of 0 experts"),
    "expert groups": (
        {"llama.expert_count": _u32(8), "llama.expert_used_count": _u32(2), "llama.expert_group_count": _u32(3)},
        "llama.expert_group_count is 3 with 0 used, which does not fit 8 experts",
    ),
}


@pytest.mark.parametrize(("keys", "expected"), NUMBERS.values(), ids=NUMBERS.keys())
def test_number_that_native_code_would_abort_on_is_refused(tmp_path: Path, keys: dict[str, bytes], expected: str) -> None:
    model = small_model()
    model.keys |= keys  # type: ignore[arg-type]
    assert expected in _refusal(tmp_path, model)


@pytest.mark.parametrize("name", ["block_count", "context_length", "embedding_length"])
def test_model_with_weights_needs_its_numbers(tmp_path: Path, name: str) -> None:
    model = small_model()
    del model.keys[f"llama.{name}"]
    assert f"llama.{name} is missing" in _refusal(tmp_path, model)


def test_per_layer_heads_without_a_layer_count_are_refused(tmp_path: Path) -> None:
    model = small_model()
    model.tensors = []
    del model.keys["llama.block_count"]
    model.keys["llama.attention.head_count"] = numbers("u32", [])
    assert "head_count has 0 entries, but the number of layers is missing" in _refusal(tmp_path, model)


VOCABULARIES = {
    "tokens are numbers": ({"tokens": numbers("i32", [1] * 8)}, "tokens is of type [i32], expected [str]"),
    "tokens are one string": ({"tokens": text("a")}, "tokens is of type str, expected [str]"),
    "scores as f64": ({"scores": numbers("f64", [0.0] * 8)}, "scores is of type [f64], expected [f32] or [i32]"),
    "scores as one number": ({"scores": scalar("f32", 1)}, "scores is of type f32, expected [f32] or [i32]"),
    "few scores": ({"scores": numbers("f32", [0.0] * 7)}, "scores has 7 entries, but there are 8 tokens"),
    "types as u32": ({"token_type": numbers("u32", [1] * 8)}, "token_type is of type [u32], expected [i32]"),
    "few types": ({"token_type": numbers("i32", [1])}, "token_type has 1 entries, but there are 8 tokens"),
    "merges are numbers": ({"merges": numbers("u8", [1])}, "merges is of type [u8], expected [str]"),
    "charsmap as f32": ({"precompiled_charsmap": numbers("f32", [1])}, "precompiled_charsmap is of type [f32]"),
    "eos beyond": ({"eos_token_id": scalar("u32", 8)}, "eos_token_id is 8, expected 0 to 7"),
    "bos -1": ({"bos_token_id": scalar("i32", -1)}, "bos_token_id is -1, expected 0 to 7"),
    "bos as text": ({"bos_token_id": text("1")}, "bos_token_id is of type str, expected an integer"),
    "pad beyond": ({"padding_token_id": scalar("u32", 2**32 - 1)}, "padding_token_id is 4,294,967,295"),
    "add_bos as u32": ({"add_bos_token": scalar("u32", 1)}, "add_bos_token is of type u32, expected bool"),
    "model as number": ({"model": scalar("u32", 1)}, "tokenizer.ggml.model is of type u32, expected str"),
    "<0x-1>": (
        {"tokens": texts([*TOKENS[:4], "<0x-1>", *TOKENS[5:]])},
        "tokens[4] is '<0x-1>', expected two hexadecimal digits",
    ),
    "<0x1FF>": ({"tokens": texts([*TOKENS[:3], "<0x1FF>", *TOKENS[4:]])}, "tokens[3] is '<0x1FF>', expected two"),
    "short byte token": (
        {"tokens": texts([*TOKENS[:3], "x", *TOKENS[4:]])},
        "tokens[3] is the byte token 'x', expected the form",
    ),
    "twice": ({"tokens": texts([*TOKENS[:7], "a"])}, "tokens[7] is 'a', the same as token 4"),
    "twice up to zero": ({"tokens": texts([*TOKENS[:7], "a\0b"])}, "tokens[7] is 'a\\x00b', the same as token 4"),
    "name of an empty one": ({"tokens": texts([*TOKENS[:6], "[EMPTY_7]", ""])}, "tokens[7] is '', the same as token 6"),
    "huge token": (
        {"tokens": texts([*TOKENS[:7], "x" * 65_536])},
        "tokens[7] has 65,536 characters, above the limit of 65,535",
    ),
}


@pytest.mark.parametrize(("keys", "expected"), VOCABULARIES.values(), ids=VOCABULARIES.keys())
def test_vocabulary_that_confuses_native_tokenizers_is_refused(tmp_path: Path, keys: dict[str, bytes], expected: str) -> None:
    model = small_model()
    model.keys |= {f"tokenizer.ggml.{name}": value for name, value in keys.items()}
    assert expected in _refusal(tmp_path, model)


def test_chat_template_of_another_type_is_refused(tmp_path: Path) -> None:
    model = small_model()
    model.keys["tokenizer.chat_template"] = texts(["{{ x }}"])
    assert "tokenizer.chat_template is of type [str], expected str" in _refusal(tmp_path, model)


def test_token_types_without_tokens_are_refused(tmp_path: Path) -> None:
    model = small_model()
    del model.keys["tokenizer.ggml.tokens"]
    assert "token_type has 8 entries, but there are 0 tokens" in _refusal(tmp_path, model)


def _with(*tensors: Tensor, trailing: bytes = b"") -> Gguf:
    model = small_model()
    model.tensors += tensors
    model.trailing = trailing
    return model


LAYOUTS = {
    "unaligned": (_with(Tensor("x", (32,), F32, 128, offset=16)), "tensor 'x' has offset 16, not a multiple of 32"),
    "overlap": (_with(Tensor("x", (32,), F32, 128, offset=32)), "tensor 'x' at offset 32 overlaps 'token_embd.weight'"),
    "same place": (_with(Tensor("x", (32,), F32, 128, offset=0)), "overlaps"),
    "beyond the end": (_with(Tensor("x", (32,), F32, 128, offset=2**40)), "tensor 'x' ends at byte 1,099,511,627,904"),
    "offset wraps": (
        _with(Tensor("x", (32,), F32, 128, offset=2**64 - 32)),
        "tensor 'x' ends at byte 18,446,744,073,709,551,712",
    ),
    "larger than data": (_with(Tensor("x", (2**40,), F32, 128)), "tensor 'x' ends at byte 4,398,046,51"),
    "trailing": (_with(trailing=b"\0" * 70_000), "70,000 bytes follow the last tensor, above the limit of 65,536"),
}


@pytest.mark.parametrize(("model", "expected"), LAYOUTS.values(), ids=LAYOUTS.keys())
def test_tensor_outside_its_place_is_refused(tmp_path: Path, model: Gguf, expected: str) -> None:
    assert expected in _refusal(tmp_path, model)


def test_truncated_download_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    content = small_model().to_bytes()
    for size in (len(content) - 200, len(content) // 2, 600, 25):
        path.write_bytes(content[:size])
        with pytest.raises(GgufError, match=r"truncated|follow"):
            read_gguf(path)


@pytest.mark.parametrize("architecture", ["not-a-model", "", "LLAMA", "llama\0", "clip", "(unknown)"])
def test_architecture_that_llama_cpp_does_not_know_is_refused(tmp_path: Path, architecture: str) -> None:
    model = small_model()
    model.keys["general.architecture"] = text(architecture)
    assert "architecture" in _refusal(tmp_path, model)


def test_unknown_architecture_passes_when_the_caller_does_not_ask(tmp_path: Path) -> None:
    model = small_model()
    model.keys = {  # type: ignore[assignment]
        str(key).replace("llama.", "novel."): value for key, value in model.keys.items()
    } | {"general.architecture": text("novel")}
    path = tmp_path / "model.gguf"
    path.write_bytes(model.to_bytes())
    assert "novel" not in ARCHITECTURES
    assert read_gguf(path, guard=Guard(check_architecture=False)).block_count == 2


KINDS: dict[Kind, Callable[[], Gguf]] = {"model": small_model, "mmproj": small_projector, "adapter": small_adapter}


@pytest.mark.parametrize("asked", KINDS)
@pytest.mark.parametrize("given", KINDS)
def test_each_kind_of_file_is_accepted_only_in_its_own_place(tmp_path: Path, asked: Kind, given: Kind) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(KINDS[given]().to_bytes())
    if asked == given:
        assert read_gguf(path, kind=asked).tensors
    else:
        with pytest.raises(GgufError, match=f"file is of type '{given}' .* expected a file of type '{asked}'"):
            read_gguf(path, kind=asked)


OTHERS: dict[str, tuple[Kind, str, bytes, str]] = {
    "projector unknown": ("mmproj", "clip.projector_type", text("x"), "clip.projector_type is 'x', which is no projector"),
    "projector missing": ("mmproj", "clip.projector_type", b"", "clip.projector_type is missing"),
    "patch_size 0": ("mmproj", "clip.vision.patch_size", _u32(0), "clip.vision.patch_size is 0, expected 1 to"),
    "projector layers": ("mmproj", "clip.vision.block_count", _u32(513), "clip.vision.block_count is 513"),
    "projector heads": ("mmproj", "clip.vision.attention.head_count", _u32(0), "head_count is 0, expected 1"),
    "adapter type": ("adapter", "adapter.type", text("dora"), "adapter.type is 'dora', which is no"),
    "adapter type missing": ("adapter", "adapter.type", b"", "adapter.type is missing"),
    "alpha missing": ("adapter", "adapter.lora.alpha", b"", "adapter.lora.alpha is None, expected a finite number"),
    "alpha text": ("adapter", "adapter.lora.alpha", text("1"), "adapter.lora.alpha is of type str, expected f32"),
    "alpha NaN": ("adapter", "adapter.lora.alpha", scalar("f32", float("nan")), "alpha is nan, expected a finite number"),
    "adapter pooling": ("adapter", "llama.pooling_type", _u32(77), "llama.pooling_type is 77"),
}


@pytest.mark.parametrize(("kind", "key", "value", "expected"), OTHERS.values(), ids=OTHERS.keys())
def test_malformed_projector_or_adapter_is_refused(tmp_path: Path, kind: Kind, key: str, value: bytes, expected: str) -> None:
    model = KINDS[kind]()
    model.keys[key] = value
    if not value:
        del model.keys[key]
    assert re.search(re.escape(expected), _refusal(tmp_path, model, kind))
