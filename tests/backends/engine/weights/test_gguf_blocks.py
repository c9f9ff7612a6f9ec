"""Every storage format of GGUF against the numpy code of the `gguf` package, bit for bit."""

import gguf
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.engine.weights.gguf_blocks import BLOCK_FORMATS
from backends.engine.weights.gguf_inventory import READABLE
from backends.engine.weights.tensors import PLAIN
from backends.gguf.types import GGML_TYPES_BY_NAME


def test_every_format_that_the_inventory_lets_pass_can_be_read() -> None:
    assert BLOCK_FORMATS.keys() | PLAIN.keys() == READABLE


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # the oracle multiplies infinities
@pytest.mark.parametrize("kind", sorted(BLOCK_FORMATS))
@given(count=st.integers(1, 9), seed=st.integers(0, 2**32 - 1))
@settings(max_examples=25, deadline=None)
def test_any_bytes_become_the_same_numbers_as_in_the_gguf_package(kind: str, count: int, seed: int) -> None:
    size = GGML_TYPES_BY_NAME[kind].block_bytes
    raw = np.random.default_rng(seed).integers(0, 256, (count, size), dtype=np.uint8)
    expected = gguf.quants.dequantize(raw, gguf.GGMLQuantizationType[kind])
    found = BLOCK_FORMATS[kind](torch.from_numpy(raw)).dense().numpy()
    same_bits = found.view(np.uint32) == expected.view(np.uint32)
    assert np.all(same_bits | (np.isnan(found) & np.isnan(expected)))
