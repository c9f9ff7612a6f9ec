"""From the bytes of a GGUF header to keys, values and tensor infos, checking form but not meaning.

What is refused here would confuse any parser: wrong magic, counts, types, lengths, encodings, duplicates. Whether the values
make sense as a model is for `kinds`, `hyperparameters`, `vocabulary` and `layout`. Source: GGUF specification (versions 2 and 3
are laid out alike).
"""

import struct
from array import array
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from backends.gguf.errors import GgufError, shown
from backends.gguf.limits import (
    DEFAULT_ALIGNMENT,
    MAX_ALIGNMENT,
    MAX_DIMENSIONS,
    MAX_INT64,
    MAX_KEY_BYTES,
    MAX_TENSOR_NAME_BYTES,
    MIN_ALIGNMENT,
    MIN_FILE_BYTES,
    SMALL_ARRAY,
)
from backends.gguf.reader import Cursor
from backends.gguf.types import ARRAY, BOOL, GGML_TYPES, REMOVED_GGML_TYPES, STRING, VALUE_TYPES, GgmlType, ValueType

_VERSIONS = (2, 3)


@dataclass(frozen=True, slots=True)
class SkippedArray:
    """Stands for an array that was bounds-checked but not kept; `element` names its type (`str`, `f32`)."""

    element: str
    count: int

    def __len__(self) -> int:
        return self.count


# Quoted, because `array` cannot be subscripted before Python 3.12.
Value: TypeAlias = "int | float | bool | str | array[int] | array[float] | tuple[str, ...] | SkippedArray"


@dataclass(frozen=True, slots=True)
class RawTensor:
    """A line of the tensor table. `shape` is in ggml order (`shape[0]` varies fastest), `offset` counts from `data_offset`."""

    name: str
    shape: tuple[int, ...]
    type: GgmlType
    offset: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class Header:
    """What a header says. `value_types` names the type of each value: `u32`, `str`, `[f32]` for an array of `f32`."""

    version: int
    metadata: Mapping[str, Value]
    value_types: Mapping[str, str]
    tensors: tuple[RawTensor, ...]
    alignment: int
    data_offset: int


def parse_header(cursor: Cursor, *, arrays: bool = True) -> Header:
    """Read a header from its first byte.

    Args:
        cursor: at offset 0.
        arrays: keep the content of arrays above 1,024 elements; else a `SkippedArray` takes their place.

    Raises:
        GgufError: the header is malformed, truncated or above a limit.
    """
    version, num_tensors, num_keys = _preamble(cursor)
    metadata: dict[str, Value] = {}
    value_types: dict[str, str] = {}
    for index in range(num_keys):
        key = _name(cursor, f"key {index}", MAX_KEY_BYTES, metadata)
        metadata[key], value_types[key] = _value(cursor, shown(key), arrays)
    alignment = _alignment(metadata, value_types)
    tensors: dict[str, RawTensor] = {}
    for index in range(num_tensors):
        name = _name(cursor, f"tensor {index}", MAX_TENSOR_NAME_BYTES, tensors)
        tensors[name] = _tensor(cursor, name)
    data_offset = -(-cursor.position // alignment) * alignment
    return Header(version, metadata, value_types, tuple(tensors.values()), alignment, data_offset)


def _preamble(cursor: Cursor) -> tuple[int, int, int]:
    if cursor.size < MIN_FILE_BYTES:
        raise GgufError(f"file has {cursor.size} bytes, a GGUF header needs at least {MIN_FILE_BYTES}")
    magic = cursor.take(4, "magic")
    if magic != b"GGUF":
        raise GgufError(f"magic is {magic!r}, expected b'GGUF'")
    version = cursor.u32("version")
    if version & 0xFFFF == 0:
        raise GgufError(f"version {version:#010x} is byte-swapped: big-endian GGUF files are not supported")
    if version not in _VERSIONS:
        raise GgufError(f"version {version:,} is not supported, only 2 and 3 are")
    num_tensors = _count(cursor, "tensor count", cursor.limits.tensors)
    return version, num_tensors, _count(cursor, "key count", cursor.limits.keys)


def _count(cursor: Cursor, field: str, limit: int) -> int:
    count = cursor.u64(field)
    if count > limit:
        raise GgufError(f"{field} {count:,} is above the limit of {limit:,}")
    return count


def _name(cursor: Cursor, field: str, limit: int, taken: Mapping[str, object]) -> str:
    name = cursor.string(field, limit, "name")
    if not name:
        raise GgufError(f"{field}: name is empty")
    if "\0" in name:  # native code compares C strings: "a\0b" would be found as "a"
        raise GgufError(f"{field}: name {shown(name)} contains a zero byte")
    if name in taken:
        raise GgufError(f"{field}: name {shown(name)} occurs twice")
    return name


def _value(cursor: Cursor, field: str, arrays: bool) -> tuple[Value, str]:
    code = cursor.u32(f"{field} type")
    if code == ARRAY:
        return _array(cursor, field, arrays)
    kind = _value_type(code, f"{field} type")
    if code == STRING:
        return cursor.string(field, cursor.limits.string_bytes), kind.name
    value: int | float = struct.unpack("<" + kind.code, cursor.take(kind.size, field))[0]
    if code != BOOL:
        return value, kind.name
    if value > 1:
        raise GgufError(f"{field}: bool is {value}, expected 0 or 1")
    return bool(value), kind.name


def _array(cursor: Cursor, field: str, arrays: bool) -> tuple[Value, str]:
    code = cursor.u32(f"{field} element type")
    if code == ARRAY:
        raise GgufError(f"{field}: arrays of arrays are not supported")
    kind = _value_type(code, f"{field} element type")
    count = _count(cursor, f"{field} array length", cursor.limits.array_elements)
    if count * kind.size > cursor.remaining:
        raise GgufError(
            f"{field}: array of {count:,} {kind.name} needs at least {count * kind.size:,} bytes, "
            f"but only {cursor.remaining:,} follow"
        )
    keep = arrays or count <= SMALL_ARRAY
    name = f"[{kind.name}]"
    if code == STRING:
        if keep:
            return cursor.strings(count, field), name
        cursor.skip_strings(count, field)
        return SkippedArray(kind.name, count), name
    if not keep:
        cursor.skip(count * kind.size, field)
        return SkippedArray(kind.name, count), name
    values = cursor.numbers(kind.code, kind.size, count, field)
    if code == BOOL and values.tobytes().translate(None, b"\0\1"):
        raise GgufError(f"{field}: array of bool holds {max(values)}, expected 0 or 1")
    return values, name


def _value_type(code: int, field: str) -> ValueType:
    kind = VALUE_TYPES.get(code)
    if kind is None:
        raise GgufError(f"{field} {code:,} is unknown, the highest is {max(VALUE_TYPES)}")
    return kind


def _alignment(metadata: Mapping[str, Value], value_types: Mapping[str, str]) -> int:
    value = metadata.get("general.alignment", DEFAULT_ALIGNMENT)
    kind = value_types.get("general.alignment", "u32")
    if kind != "u32" or not isinstance(value, int):
        raise GgufError(f"general.alignment is of type {kind}, expected u32")
    if not MIN_ALIGNMENT <= value <= MAX_ALIGNMENT or value & (value - 1):
        raise GgufError(f"general.alignment {value:,} is not a power of two from {MIN_ALIGNMENT} to {MAX_ALIGNMENT:,}")
    return value


def _tensor(cursor: Cursor, name: str) -> RawTensor:
    field = f"tensor {shown(name)}"
    num_dimensions = cursor.u32(f"{field} dimensions")
    if not 1 <= num_dimensions <= MAX_DIMENSIONS:
        raise GgufError(f"{field} has {num_dimensions:,} dimensions, expected 1 to {MAX_DIMENSIONS}")
    shape: tuple[int, ...] = struct.unpack(f"<{num_dimensions}Q", cursor.take(8 * num_dimensions, f"{field} shape"))
    elements = 1
    for dimension in shape:
        elements *= dimension
    if elements == 0:
        raise GgufError(f"{field} has a dimension of 0 in its shape {shape}")
    kind = _ggml_type(cursor.u32(f"{field} type"), field)
    if shape[0] % kind.block_size:
        raise GgufError(
            f"{field} has rows of {shape[0]:,} elements, not a multiple of the {kind.name} block of {kind.block_size}"
        )
    nbytes = kind.nbytes(elements)
    if max(elements, nbytes) > MAX_INT64:
        raise GgufError(f"{field} has {elements:,} elements in {nbytes:,} bytes, above the limit of 2^63-1")
    return RawTensor(name, shape, kind, cursor.u64(f"{field} offset"), nbytes)


def _ggml_type(code: int, field: str) -> GgmlType:
    kind = GGML_TYPES.get(code)
    if kind is not None:
        return kind
    if code in REMOVED_GGML_TYPES:
        raise GgufError(f"{field} has the removed ggml type {code} ({REMOVED_GGML_TYPES[code]}): quantize the model again")
    raise GgufError(f"{field} has the unknown ggml type {code:,}, the highest is {max(GGML_TYPES)}")
