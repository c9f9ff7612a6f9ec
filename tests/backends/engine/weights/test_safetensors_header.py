"""The header of a safetensors file: what the library writes is accepted, and what would mislead a reader is not."""

import json
import struct
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from safetensors import SafetensorError, safe_open
from safetensors.torch import save

from backends.engine.errors import ModelFileError
from backends.engine.weights.safetensors_header import MAX_HEADER_BYTES, MAX_TENSORS, read_header


def _file(folder: Path, header: bytes | dict[str, Any], data: bytes = b"", length: int | None = None) -> Path:
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    path = folder / "model.safetensors"
    path.write_bytes(struct.pack("<Q", len(raw) if length is None else length) + raw + data)
    return path


def _entry(begin: int, end: int, dtype: str = "U8", shape: list[int] | None = None) -> dict[str, Any]:
    return {"dtype": dtype, "shape": [end - begin] if shape is None else shape, "data_offsets": [begin, end]}


shapes = st.lists(st.integers(0, 5), max_size=3)
dtypes = st.sampled_from(
    [torch.float32, torch.float16, torch.bfloat16, torch.int8, torch.int64, torch.bool, torch.float8_e4m3fn]
)


@given(content=st.dictionaries(st.text(min_size=1, max_size=8), st.tuples(shapes, dtypes), max_size=5))
@settings(max_examples=50, deadline=None)
def test_what_the_library_writes_is_read(
    tmp_path_factory: pytest.TempPathFactory, content: dict[str, tuple[list[int], torch.dtype]]
) -> None:
    content.pop("__metadata__", None)
    tensors = {name: torch.zeros(shape).to(dtype) for name, (shape, dtype) in content.items()}
    path = tmp_path_factory.mktemp("written") / "model.safetensors"
    path.write_bytes(save(tensors, {"format": "pt"}))
    file, places = read_header(path)
    assert file.identity.size == path.stat().st_size
    assert {place.name: place.shape for place in places} == {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    assert sum(place.nbytes for place in places) == sum(tensor.nbytes for tensor in tensors.values())


_WHOLE = save({"a": torch.ones(3, 2), "b": torch.ones(4, dtype=torch.float16)}, {"format": "pt"})


@given(position=st.integers(0, len(_WHOLE) - 1), octet=st.integers(0, 255), cut=st.integers(0, len(_WHOLE)))
@example(position=26, octet=128, cut=0)  # no UTF-8 within the metadata
@settings(max_examples=300, deadline=None)
def test_a_damaged_file_is_an_error_or_what_the_library_reads_too(
    tmp_path_factory: pytest.TempPathFactory, position: int, octet: int, cut: int
) -> None:
    raw = bytearray(_WHOLE)
    raw[position] = octet
    path = tmp_path_factory.mktemp("damaged") / "model.safetensors"
    path.write_bytes(raw[: cut or len(raw)])
    try:
        _, places = read_header(path)
    except ModelFileError:
        return
    with safe_open(path, "pt") as file:
        assert {place.name for place in places} == set(file.keys())
        for place in places:
            assert tuple(file.get_slice(place.name).get_shape()) == place.shape


@pytest.mark.parametrize(
    ("header", "data", "reason"),
    [
        ({"a": _entry(0, 8)}, b"1234", "tensors end at byte .* is it truncated"),
        ({"a": _entry(0, 4)}, b"12345678", "what follows belongs to no tensor"),
        ({"a": _entry(0, 4), "b": _entry(2, 6)}, b"123456", "tensor 'b' at byte .* overlaps 'a'"),
        ({"a": _entry(0, 4), "b": _entry(0, 4)}, b"1234", "overlaps"),
        ({"a": _entry(0, 2), "b": _entry(4, 6)}, b"123456", "tensor 'b' at byte .* leaves a gap behind 'a'"),
        ({"a": _entry(0, 4, "F32", [2])}, b"1234", r"tensor 'a': F32 \[2\] needs 8 bytes, but data_offsets hold 4"),
        ({"a": _entry(4, 0, "U8", [4])}, b"1234", "needs 4 bytes, but data_offsets hold -4"),
        ({"a": _entry(0, 4, "F32", [-1])}, b"1234", "tensor 'a': Expected `int` >= 0"),
        ({"a": _entry(0, 2**40)}, b"1234", "truncated"),
        ({"a": _entry(0, 4, "F4")}, b"1234", "tensor 'a' has the dtype 'F4', which is not supported"),
        ({"a": {"dtype": "F32", "shape": [1]}}, b"1234", "missing required field `data_offsets`"),
        (b"[1]", b"", "header: Expected `object`"),
        (b"{" * 50_000, b"", "header: "),
        (b'{"a": "\xff"}', b"", "tensor 'a': |header: "),
        (b"", b"", "header: "),
    ],
)
def test_a_header_that_lies_is_refused(tmp_path: Path, header: bytes | dict[str, Any], data: bytes, reason: str) -> None:
    path = _file(tmp_path, header, data)
    with pytest.raises(ModelFileError, match=rf"^'model.safetensors': .*({reason})"):
        read_header(path)
    with pytest.raises(SafetensorError), safe_open(path, "pt"):
        pass


@pytest.mark.parametrize("length", [2**63, 2**64 - 1, MAX_HEADER_BYTES + 1, 5_000])
def test_an_absurd_length_costs_no_memory(tmp_path: Path, length: int) -> None:
    path = _file(tmp_path, {"a": _entry(0, 4)}, b"1234", length)
    tracemalloc.start()
    with pytest.raises(ModelFileError, match=r"above the limit of 100,000,000 bytes|does not fit the file"):
        read_header(path)
    assert tracemalloc.get_traced_memory()[1] < 1024**2
    tracemalloc.stop()


def test_too_many_tensors_are_refused_early(tmp_path: Path) -> None:
    header = b"{" + b",".join(b'"%d":0' % i for i in range(MAX_TENSORS + 1)) + b"}"
    with pytest.raises(ModelFileError, match=r"65,537 tensors are above the limit of 65,536"):
        read_header(_file(tmp_path, header))
    with pytest.raises(ModelFileError, match=r"colons, above the limit"):
        read_header(_file(tmp_path, b":" * 1_000_001))


def test_a_long_shape_is_refused_before_it_is_decoded(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match=r"tensor 'a': entry has .* bytes, above the limit of 1,024"):
        read_header(_file(tmp_path, {"a": _entry(0, 4, "U8", [4] + [1] * 600)}, b"1234"))


def test_a_file_shorter_than_its_length_field_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(b"1234")
    with pytest.raises(ModelFileError, match=r"a safetensors header needs at least 8"):
        read_header(path)
