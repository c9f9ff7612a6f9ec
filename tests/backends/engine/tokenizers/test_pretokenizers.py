"""Every way of cutting text into words, against llama.cpp: GPT-2's vocabulary is read under the name of each pre-tokenizer."""

import unicodedata
from collections.abc import Callable
from pathlib import Path

import pytest
from llama_vocabulary import llama_vocabulary
from many_texts import WORDS

from backends.engine.tokenizers.errors import TokenizerError
from backends.engine.tokenizers.load import load_tokenizer
from backends.engine.tokenizers.pretokenizers import PRE_TOKENIZERS
from backends.gguf.read import read_gguf
from tests.backends.gguf.build import Gguf, numbers, scalar, text, texts

# One name of each family; the names of a family share one object.
FAMILIES = sorted({pre.patterns: name for name, pre in reversed(PRE_TOKENIZERS.items())}.values())
# Here llama.cpp only comes near the pattern of the model: it counts no accent to a letter, and takes all white space for one.
NEARLY: dict[str, Callable[[str], bool]] = {
    "tekken": lambda character: unicodedata.category(character)[0] == "M",
    "gpt-4o": lambda character: unicodedata.category(character)[0] == "M",
    "deepseek-coder": lambda character: character in "\u2003\u2028",
    "deepseek-llm": lambda character: character in "\u2003\u2028\u3000",
}
SENTENCES = [
    "I'll say it's 12345678 or 3.14, y'ALL'RE 'd 've x'S",
    "snake_case CamelCase HTTPServer/path/to.py\n\n\n    return  x\t\t;  \r\n \n",
    "Grüße, ÉCOLE écoleÉ naïve Straße ǅ Привет МИР!  …»«",
    "日本語とカタカナ、한국어 العربية עברית ภาษา हिन्दी ２０２４ ½ ²",
    " \u00a0 \u2003x   ?!  !?  #include <a.h> [1] {a: b} a@b.c  💡🦙 ",
]

Relabelled = Callable[[str], Path]


@pytest.fixture(scope="module")
def relabelled(vectors: Path, tmp_path_factory: pytest.TempPathFactory) -> Relabelled:
    """GPT-2's vocabulary, saying of itself that it wants another pre-tokenizer."""
    metadata = read_gguf(vectors / "ggml-vocab-gpt-2.gguf").metadata
    tokens, merges = metadata["tokenizer.ggml.tokens"], metadata["tokenizer.ggml.merges"]
    assert isinstance(tokens, tuple)
    assert isinstance(merges, tuple)
    keys = {
        "general.architecture": text("gpt2"),
        "tokenizer.ggml.model": text("gpt2"),
        "tokenizer.ggml.tokens": texts(tokens),
        "tokenizer.ggml.merges": texts(merges),
        "tokenizer.ggml.token_type": numbers("i32", [1] * (len(tokens) - 1) + [3]),
        "tokenizer.ggml.bos_token_id": scalar("u32", len(tokens) - 1),
    }

    def write(pre: str) -> Path:
        path = tmp_path_factory.mktemp("relabelled") / f"{pre}.gguf"
        path.write_bytes(Gguf(keys={**keys, "tokenizer.ggml.pre": text(pre)}).to_bytes())
        return path

    return write


@pytest.mark.parametrize("pre", FAMILIES)
def test_text_is_cut_as_llama_cpp_cuts_it(relabelled: Relabelled, pre: str) -> None:
    path = relabelled(pre)
    ours = load_tokenizer(path)
    pairs = ["\n".join(first + second for second in WORDS[::3]) for first in WORDS]
    cases = [*SENTENCES, *WORDS, "".join(WORDS), " ".join(WORDS), *pairs]
    unlike = NEARLY.get(pre, lambda _: False)
    with llama_vocabulary(path) as theirs:
        assert ours.adds_bos == theirs.adds_bos
        for case in ("".join(character for character in case if not unlike(character)) for case in cases):
            expected = theirs.tokenize(case, add_special=False, parse_special=False)
            assert ours.tokenize(case, add_special=False, parse_special=False) == expected, case


def test_words_of_mixed_case_are_cut_as_the_models_own_pattern_does(relabelled: Relabelled) -> None:
    vocabulary = load_tokenizer(relabelled("tekken"))
    tokens = vocabulary.tokenize("aÉ", add_special=False, parse_special=False)
    assert [vocabulary.piece(token) for token in tokens] == [b"a", "É".encode()]


def test_an_unknown_pre_tokenizer_is_refused_by_name(relabelled: Relabelled) -> None:
    with pytest.raises(
        TokenizerError, match=r"'martian.gguf': the pre-tokenizer 'martian' is not supported; those that are: gpt-2 "
    ):
        load_tokenizer(relabelled("martian"))
