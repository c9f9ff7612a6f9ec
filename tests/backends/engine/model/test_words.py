"""The embedding and the head in every precision, against float64."""

from pathlib import Path

import gguf
import pytest
import torch
from gguf.quants import quantize
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.engine.model.head import DenseWords, Int8Words, Words, read_words
from backends.engine.weights.folder_source import FolderSource
from backends.engine.weights.gguf_source import GgufSource
from kernels.ops import open_device
from tests.backends.engine.weights import folders, ggufs

F32, BF16, INT8 = torch.float32, torch.bfloat16, torch.int8
kinds = pytest.mark.parametrize("kind", [F32, BF16, INT8], ids=["fp32", "bf16", "int8"])


def words_and_meaning(kind: torch.dtype, vocab: int, columns: int, seed: int, threads: int = 1) -> tuple[Words, torch.Tensor]:
    """A matrix of random words, and what it stands for in float64."""
    dice = torch.Generator().manual_seed(seed)
    if kind == INT8:
        codes = torch.randint(-127, 128, (vocab, columns), generator=dice).to(INT8)
        scales = torch.rand(vocab, columns // 32, generator=dice) / 100
        return Int8Words(codes, scales, open_device(threads=threads)), codes.double() * scales.double().repeat_interleave(32, 1)
    weight = torch.randn(vocab, columns, generator=dice).to(kind)
    return DenseWords(weight, open_device(threads=threads)), weight.double()


@kinds
@settings(max_examples=25, deadline=None)
@given(
    rows=st.sampled_from([1, 2, 3, 4, 5, 31, 32, 33, 70]),
    vocab=st.sampled_from([1, 15, 160, 1003]),
    columns=st.sampled_from([32, 64, 96, 576, 640]),
    seed=st.integers(0, 1 << 30),
)
def test_logits_are_dot_products_with_every_word(kind: torch.dtype, rows: int, vocab: int, columns: int, seed: int) -> None:
    words, meaning = words_and_meaning(kind, vocab, columns, seed)
    x = torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed + 1))
    found, exact = words.logits(x), x.double() @ meaning.t()
    assert found.dtype == F32
    size = x.double().norm(dim=1, keepdim=True) * meaning.norm(dim=1)
    assert ((found.double() - exact).abs() <= 1e-6 * size).all()


@kinds
def test_a_vocabulary_longer_than_a_slice_is_multiplied_whole(kind: torch.dtype) -> None:
    words, meaning = words_and_meaning(kind, 8192 + 77, 32, 1)
    x = torch.randn(40, 32, generator=torch.Generator().manual_seed(2))
    assert torch.allclose(words.logits(x).double(), x.double() @ meaning.t(), atol=1e-4)


@pytest.mark.parametrize("kind", [BF16, INT8], ids=["bf16", "int8"])
def test_logits_of_a_decoded_row_have_the_same_bits_alone_beside_others_and_on_more_threads(kind: torch.dtype) -> None:
    x = torch.randn(32, 576, generator=torch.Generator().manual_seed(2))
    one, two = (words_and_meaning(kind, 1003, 576, 1, threads)[0] for threads in (1, 2))
    whole = one.logits(x)
    assert torch.equal(two.logits(x), whole)
    for rows in (1, 2, 3, 5):
        for first in (0, 9, 27):
            assert torch.equal(one.logits(x[first : first + rows].contiguous()), whole[first : first + rows])


@kinds
def test_rows_are_looked_up_as_they_are(kind: torch.dtype) -> None:
    words, meaning = words_and_meaning(kind, 50, 64, 1)
    ids = torch.tensor([7, 0, 49, 7])
    found = words.rows(ids)
    assert found.dtype == F32
    assert torch.allclose(found.double(), meaning[ids], rtol=1e-6)


def test_eight_bit_words_of_a_file_are_taken_as_they_are(tmp_path: Path) -> None:
    content = ggufs.tensors()
    values = quantize(content["token_embd.weight"][1], gguf.GGMLQuantizationType.Q8_0)
    content["token_embd.weight"] = ("Q8_0", values)
    source = GgufSource(ggufs.write(tmp_path / "model.gguf", "llama", ggufs.NUMBERS, content))
    everything = torch.arange(ggufs.VOCAB)
    for precision, kind in {"file": "int8-g32", "int8": "int8-g32", "bf16": "bf16", "fp32": "fp32"}.items():
        words = read_words(source, "embed", precision, open_device(threads=1))
        assert words.kind == kind
        exact = source.dense("embed").float()
        assert torch.equal(words.rows(everything), exact.bfloat16().float() if kind == "bf16" else exact)
    source.close()


def test_other_words_are_rounded_to_eight_bits_only_when_asked(tmp_path: Path) -> None:
    source = FolderSource(folders.write(tmp_path / "model"))
    assert read_words(source, "embed", "file", open_device(threads=1)).kind == "bf16"
    words, exact = read_words(source, "embed", "int8", open_device(threads=1)), source.dense("embed")
    assert words.kind == "int8-g32"
    assert words.nbytes == folders.VOCAB * (folders.HIDDEN + folders.HIDDEN // 32 * 4)
    off, groups = (words.rows(torch.arange(folders.VOCAB)) - exact).abs().view(-1, 32), exact.abs().view(-1, 32)
    assert (off <= 0.502 * groups.amax(-1, keepdim=True) / 127).all()
    source.close()
