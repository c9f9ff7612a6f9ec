"""llama.cpp's own test vectors: every vocabulary of a supported kind gives them all, every other is refused by name."""

from pathlib import Path

import pytest
from llama_vocabulary import llama_vocabulary
from many_texts import WORDS

from backends.engine.tokenizers.errors import TokenizerError
from backends.engine.tokenizers.load import load_tokenizer

SENTENCEPIECE = ["llama-spm", "phi-3"]
BYTE_LEVEL = (
    "command-r deepseek-coder deepseek-llm falcon gpt-2 llama-bpe mpt qwen2 qwen35 refact starcoder".split()  # noqa: SIM905
)
WITHOUT_VECTORS = ["aquila", "baichuan", "gpt-neox"]
REFUSED = {"bert-bge": "bert", "nomic-bert-moe": "t5", "gemma-4": "gemma4"}


def _file(vectors: Path, name: str, ending: str = "") -> Path:
    return vectors / f"ggml-vocab-{name}.gguf{ending}"


@pytest.mark.parametrize("name", [*SENTENCEPIECE, *BYTE_LEVEL])
def test_a_vocabulary_gives_the_tokens_that_llama_cpp_expects(vectors: Path, name: str) -> None:
    texts = _file(vectors, name, ".inp").read_bytes().decode().split("\n__ggml_vocab_test__\n")
    lines = _file(vectors, name, ".out").read_text().splitlines()
    assert len(lines) >= 46
    vocabulary = load_tokenizer(_file(vectors, name))
    for text, line in zip(texts, lines, strict=False):  # a last separator follows the last text
        assert vocabulary.tokenize(text, add_special=False, parse_special=False) == [int(token) for token in line.split()], text


@pytest.mark.parametrize("name", WITHOUT_VECTORS)
def test_a_vocabulary_without_vectors_does_as_llama_cpp_does(vectors: Path, name: str) -> None:
    ours = load_tokenizer(_file(vectors, name))
    with llama_vocabulary(_file(vectors, name)) as theirs:
        for text in [*WORDS, "".join(WORDS), " ".join(WORDS), "".join(ours.control_texts()[:20])]:
            for special in (False, True):
                expected = theirs.tokenize(text, add_special=True, parse_special=special)
                assert ours.tokenize(text, add_special=True, parse_special=special) == expected, text


@pytest.mark.parametrize("name", ["qwen2", "mpt", "deepseek-coder", "phi-3"])
def test_what_a_vocabulary_says_about_its_tokens_is_what_llama_cpp_says(vectors: Path, name: str) -> None:
    ours = load_tokenizer(_file(vectors, name))
    with llama_vocabulary(_file(vectors, name)) as theirs:
        assert _facts(ours) == _facts(theirs)
        tokens = [token for token in range(ours.size) if token % 16 == 0 or theirs.is_control(token)]
        assert [ours.piece(token) for token in tokens] == [theirs.piece(token) for token in tokens]
        assert sorted(ours.control_texts()) == sorted(theirs.control_texts())


def _facts(vocabulary: object) -> tuple[object, ...]:
    return tuple(getattr(vocabulary, name) for name in ("size", "bos", "eos", "adds_bos", "end_tokens"))


@pytest.mark.parametrize(("name", "kind"), REFUSED.items())
def test_a_vocabulary_of_another_kind_is_refused_by_name(vectors: Path, name: str, kind: str) -> None:
    with pytest.raises(TokenizerError, match=f"'ggml-vocab-{name}.gguf': tokenizers of kind '{kind}' are not supported"):
        load_tokenizer(_file(vectors, name))


def test_no_vocabulary_of_llama_cpp_is_left_out(vectors: Path) -> None:
    found = {path.name.removeprefix("ggml-vocab-").removesuffix(".gguf") for path in vectors.glob("*.gguf")}
    assert found == {*SENTENCEPIECE, *BYTE_LEVEL, *WITHOUT_VECTORS, *REFUSED}
