"""Headers that lie about their form are refused by name, before anything is allocated for them."""

import os
import struct
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from backends.gguf.errors import GgufError
from backends.gguf.limits import Limits
from backends.gguf.read import Guard, read_gguf
from tests.backends.gguf.build import ARRAY, F32, Gguf, Tensor, numbers, scalar, small_model, string, text, texts


def _refusal(path: Path, content: bytes | Gguf, guard: Guard | None = None) -> str:
    path.write_bytes(content if isinstance(content, bytes) else content.to_bytes())
    tracemalloc.start()
    try:
        with pytest.raises(GgufError) as caught:
            read_gguf(path, guard=guard)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 4 * 1024**2, f"{peak:,} bytes were allocated for a hostile header"
    message = str(caught.value)
    assert "model.gguf" in message
    assert len(message) < 500
    return message


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "model.gguf"


_U64 = struct.Struct("<Q").pack
_START = b"GGUF" + struct.pack("<I", 3)

RAW = {
    "empty": (b"", "file has 0 bytes, a GGUF header needs at least 24"),
    "short": (b"GGUF" + b"\0" * 19, "file has 23 bytes"),
    "magic": (b"GGML" + b"\0" * 60, "magic is b'GGML', expected b'GGUF'"),
    "version 1": (b"GGUF" + struct.pack("<I", 1) + b"\0" * 60, "version 1 is not supported"),
    "version 4": (b"GGUF" + struct.pack("<I", 4) + b"\0" * 60, "version 4 is not supported"),
    "byte-swapped": (b"GGUF" + struct.pack(">I", 3) + b"\0" * 60, "0x03000000 is byte-swapped"),
    "n_kv 2^60": (_START + _U64(0) + _U64(2**60), "key count 1,152,921,504,606,846,976 is above the limit of 65,536"),
    "n_tensors 2^63": (_START + _U64(2**63) + _U64(0), "tensor count 9,223,372,036,854,775,808 is above the limit of 65,536"),
    "key length 2^40": (_START + _U64(0) + _U64(1) + _U64(2**40) + b"x" * 8, "key 0: name length 1,099,511,627,776 is above"),
    "ends after counts": (_START + _U64(0) + _U64(1), "key 0: 8 bytes are needed at offset 24, but only 0 follow"),
}


@pytest.mark.parametrize(("content", "expected"), RAW.values(), ids=RAW.keys())
def test_malformed_preamble_is_refused(path: Path, content: bytes, expected: str) -> None:
    assert expected in _refusal(path, content)


def _nested() -> bytes:
    return struct.pack("<IIQ", ARRAY, ARRAY, 1) + struct.pack("<IQ", 4, 0)


VALUES = {
    "string 2^40": (text("x", 2**40), "'general.tags': string length 1,099,511,627,776 is above the limit of 16,777,216 bytes"),
    "string beyond the end": (text("x", 100_000), "'general.tags': 100,000 bytes are needed"),
    "string not UTF-8": (text(b"\xff\xfe"), "'general.tags': string is not valid UTF-8"),
    "unknown type": (struct.pack("<IQ", 13, 0), "'general.tags' type 13 is unknown, the highest is 12"),
    "type 2^32-1": (struct.pack("<IQ", 2**32 - 1, 0), "type 4,294,967,295 is unknown"),
    "bool 2": (scalar("bool", 2), "'general.tags': bool is 2, expected 0 or 1"),
    "array 2^63": (numbers("u8", [1], 2**63), "array length 9,223,372,036,854,775,808 is above the limit of 67,108,864"),
    "array beyond the end": (numbers("f64", [1.0], 10**6), "array of 1,000,000 f64 needs at least 8,000,000 bytes, but only"),
    "strings beyond the end": (texts(["x"], 10**6), "array of 1,000,000 str needs at least 8,000,000 bytes, but only"),
    "nested array": (_nested(), "'general.tags': arrays of arrays are not supported"),
    "array of unknown": (struct.pack("<IIQ", ARRAY, 99, 1), "'general.tags' element type 99 is unknown"),
    "array of bool 2": (numbers("bool", [0, 1, 2]), "'general.tags': array of bool holds 2"),
    "array string 2^40": (texts(["a"], 1)[:-9] + _U64(2**40), "'general.tags'[0]: string length 1,099,511,627,776 is above"),
    "array string not UTF-8": (texts(["a", b"\x80"]), "'general.tags'[1]: string is not valid UTF-8"),
}


@pytest.mark.parametrize(("value", "expected"), VALUES.values(), ids=VALUES.keys())
def test_malformed_value_is_refused(path: Path, value: bytes, expected: str) -> None:
    model = small_model()
    model.keys["general.tags"] = value
    assert expected in _refusal(path, model)


def _append(raw: bytes) -> Callable[[Gguf], None]:
    return lambda model: model.extra_keys.append(raw)


def _tensor(*changes: object, **named: object) -> Callable[[Gguf], None]:
    values: dict[str, object] = {"name": "x", "shape": (32,), "type": F32, "nbytes": 128} | named
    return lambda model: model.tensors.append(Tensor(**values))  # type: ignore[arg-type]


NAMES = {
    "empty key": (_append(string("") + scalar("u8", 1)), "key 21: name is empty"),
    "key twice": (_append(string("general.name") + text("x")), "key 21: name 'general.name' occurs twice"),
    "key not UTF-8": (_append(string(b"a\xff") + scalar("u8", 1)), "key 21: name is not valid UTF-8"),
    "key with zero byte": (_append(string("general.alignment\0") + scalar("u8", 1)), "contains a zero byte"),
    "long key": (_append(string("k" * 65_536) + scalar("u8", 1)), "key 21: name length 65,536 is above the limit of 65,535"),
    "empty tensor name": (_tensor(name=""), "tensor 4: name is empty"),
    "long tensor name": (_tensor(name="n" * 64), "tensor 4: name length 64 is above the limit of 63 bytes"),
    "tensor twice": (_tensor(name="token_embd.weight"), "tensor 4: name 'token_embd.weight' occurs twice"),
    "no dimension": (_tensor(shape=()), "tensor 'x' has 0 dimensions, expected 1 to 4"),
    "five dimensions": (_tensor(shape=(1, 1, 1, 1, 1)), "tensor 'x' has 5 dimensions, expected 1 to 4"),
    "2^32-1 dimensions": (_tensor(num_dimensions=2**32 - 1), "has 4,294,967,295 dimensions"),
    "dimension 0": (_tensor(shape=(32, 0)), "tensor 'x' has a dimension of 0 in its shape (32, 0)"),
    "elements wrap": (_tensor(shape=(2**32, 2**32, 2)), "36,893,488,147,419,103,232 elements"),
    "bytes wrap": (_tensor(shape=(2**62,)), "4,611,686,018,427,387,904 elements in 18,446,744,073,709,551,616 bytes"),
    "unknown ggml type": (_tensor(type=43), "tensor 'x' has the unknown ggml type 43, the highest is 42"),
    "removed ggml type": (_tensor(type=31), "tensor 'x' has the removed ggml type 31 (Q4_0_4_4)"),
    "ragged rows": (_tensor(shape=(33,), type=8), "tensor 'x' has rows of 33 elements, not a multiple of the Q8_0 block of 32"),
}


@pytest.mark.parametrize(("change", "expected"), NAMES.values(), ids=NAMES.keys())
def test_malformed_name_or_tensor_is_refused(path: Path, change: Callable[[Gguf], None], expected: str) -> None:
    model = small_model()
    change(model)
    assert expected in _refusal(path, model)


@pytest.mark.parametrize("value", [0, 1, 4, 33, 48, 131_072, 2**32 - 1])
def test_alignment_that_is_no_power_of_two_in_range_is_refused(path: Path, value: int) -> None:
    model = small_model()
    model.keys["general.alignment"] = scalar("u32", value)
    assert f"general.alignment {value:,} is not a power of two from 8 to 65,536" in _refusal(path, model)


@pytest.mark.parametrize("kind", ["u64", "i32", "f32", "u8"])
def test_alignment_of_another_type_is_refused(path: Path, kind: str) -> None:
    model = small_model()
    model.keys["general.alignment"] = scalar(kind, 32)
    assert f"general.alignment is of type {kind}, expected u32" in _refusal(path, model)


LIMITS = {
    "metadata": (Limits(metadata_bytes=700), "above the limit of 700 bytes"),
    "string": (Limits(string_bytes=3), "string length 5 is above the limit of 3 bytes"),
    "string in array": (Limits(string_bytes=5), "'tokenizer.ggml.tokens'[3]: string length 6 is above the limit of 5 bytes"),
    "array": (Limits(array_elements=7), "array length 8 is above the limit of 7"),
    "strings": (Limits(strings=8), "8 more strings are above the limit of 8 strings in all arrays together"),
    "keys": (Limits(keys=20), "key count 21 is above the limit of 20"),
    "tensors": (Limits(tensors=3), "tensor count 4 is above the limit of 3"),
}


@pytest.mark.parametrize(("limits", "expected"), LIMITS.values(), ids=LIMITS.keys())
def test_each_limit_is_enforced_and_named(path: Path, limits: Limits, expected: str) -> None:
    model = small_model()
    if limits.string_bytes == 5:
        model.keys = {key: value for key, value in model.keys.items() if str(key).startswith("tokenizer.ggml.tok")}
    assert expected in _refusal(path, model, Guard(limits=limits))


def test_reading_that_takes_too_long_is_given_up(path: Path) -> None:
    ticks = iter(range(0, 1000, 31))
    message = _refusal(path, small_model(), Guard(clock=lambda: next(ticks)))
    assert "took longer than the limit of 30 s" in message


def test_hostile_names_are_quoted_and_cut_in_messages(path: Path) -> None:
    model = small_model()
    model.extra_keys.append(string("\x1b[31m" + "k" * 60_000) + struct.pack("<I", 77))
    message = _refusal(path, model)
    assert "\x1b" not in message
    assert "(60,005 characters)" in message


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir], ids=["FIFO", "folder"])
def test_anything_but_a_regular_file_is_refused_without_waiting(path: Path, make: Callable[[Path], None]) -> None:
    make(path)
    with pytest.raises(GgufError, match="not a regular file"):
        read_gguf(path)


def test_device_is_refused() -> None:
    with pytest.raises(GgufError, match="device, not a regular file"):
        read_gguf("/dev/zero")


def test_missing_file_is_refused(path: Path) -> None:
    with pytest.raises(GgufError, match=r"'model\.gguf': cannot open the file: No such file"):
        read_gguf(path)


def test_link_is_followed_unless_it_leaves_the_allowed_folder(tmp_path: Path) -> None:
    outside, inside = tmp_path / "outside", tmp_path / "inside"
    outside.mkdir()
    inside.mkdir()
    (outside / "a.gguf").write_bytes(small_model().to_bytes())
    (inside / "b.gguf").write_bytes(small_model().to_bytes())
    (inside / "out.gguf").symlink_to(outside / "a.gguf")
    (inside / "in.gguf").symlink_to("b.gguf")
    assert read_gguf(inside / "out.gguf").name == "Tiny"
    assert read_gguf(inside / "in.gguf", guard=Guard(within=inside)).name == "Tiny"
    for escape in (inside / "out.gguf", inside / ".." / "outside" / "a.gguf"):
        with pytest.raises(GgufError, match="outside the folder that models may come from"):
            read_gguf(escape, guard=Guard(within=inside))
