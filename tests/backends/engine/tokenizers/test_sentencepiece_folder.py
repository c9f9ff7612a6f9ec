"""`tokenizer.model` folders: SentencePiece's own tokens, the tokens added to them, and the same model as a GGUF file."""

import io
import json
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
from hypothesis import HealthCheck, given, settings
from llama_vocabulary import llama_vocabulary
from many_texts import WORDS, texts

from backends.engine.tokenizers.errors import TokenizerError
from backends.engine.tokenizers.load import load_tokenizer
from tests.backends.gguf.build import numbers, scalar, small_model
from tests.backends.gguf.build import text as gguf_text
from tests.backends.gguf.build import texts as gguf_texts

shared = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(scope="module")
def model() -> bytes:
    """A BPE model of 600 pieces, trained like Llama's: bytes for what it lacks, digits apart, text left as it is."""
    made = io.BytesIO()
    corpus = [
        word * 3 + " " + other for word in WORDS for other in WORDS if "\x00" not in word + other and "\n" not in word + other
    ]
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(corpus),
        model_writer=made,
        vocab_size=600,
        model_type="bpe",
        byte_fallback=True,
        split_digits=True,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        control_symbols=["<|user|>"],
        minloglevel=2,
    )
    return made.getvalue()


@pytest.fixture(scope="module")
def processor(model: bytes) -> sentencepiece.SentencePieceProcessor:
    return sentencepiece.SentencePieceProcessor(model_proto=model)


def write(folder: Path, model: bytes, **files: Any) -> Path:
    (folder / "tokenizer.model").write_bytes(model)
    for name, content in files.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    return folder


@pytest.fixture(scope="module")
def folder(model: bytes, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("folder"), model)


@pytest.fixture(scope="module")
def ours(folder: Path) -> Any:
    return load_tokenizer(folder)


@pytest.fixture(scope="module")
def gguf(processor: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same model as a converter would write it."""
    tokens = list(range(processor.get_piece_size()))
    kinds = [
        2 if processor.is_unknown(i) else 3 if processor.is_control(i) else 6 if processor.is_byte(i) else 1 for i in tokens
    ]
    file = small_model()
    file.tensors = []
    file.keys |= {
        "general.architecture": gguf_text("llama"),
        "tokenizer.ggml.tokens": gguf_texts(processor.id_to_piece(tokens)),
        "tokenizer.ggml.scores": numbers("f32", processor.get_score(tokens)),
        "tokenizer.ggml.token_type": numbers("i32", kinds),
        "tokenizer.ggml.unknown_token_id": scalar("u32", 0),
    }
    path = tmp_path_factory.mktemp("gguf") / "same.gguf"
    path.write_bytes(file.to_bytes())
    return path


@shared
@given(text=texts(["<s>", "<unk>", "<|user|>", "<0x41>"]))
def test_plain_text_becomes_sentencepieces_own_tokens(ours: Any, processor: Any, text: str) -> None:
    assert ours.tokenize(text, add_special=False, parse_special=False) == processor.encode(text)
    assert ours.tokenize(text, add_special=True, parse_special=False) == [processor.bos_id(), *processor.encode(text)]


@shared
@given(text=texts(["<s>", "<unk>", "<|user|>", "<0x41>"]))
def test_the_same_model_as_a_gguf_file_gives_the_same_tokens(ours: Any, gguf: Path, text: str) -> None:
    other = load_tokenizer(gguf)
    for parse_special in (False, True):
        tokens = ours.tokenize(text, add_special=True, parse_special=parse_special)
        assert other.tokenize(text, add_special=True, parse_special=parse_special) == tokens
        assert other.detokenize(tokens) == ours.detokenize(tokens)


def test_the_same_model_as_a_gguf_file_has_the_same_digest(ours: Any, gguf: Path) -> None:
    assert load_tokenizer(gguf).digest() == ours.digest()


def test_scores_decide_as_in_llama_cpp(ours: Any, gguf: Path) -> None:
    with llama_vocabulary(gguf) as theirs:
        for text in [*WORDS, "".join(WORDS), " ".join(WORDS), "aaaaaaa", " " * 9, "<s>x<|user|> y"]:
            for parse_special in (False, True):
                expected = theirs.tokenize(text, add_special=True, parse_special=parse_special)
                assert ours.tokenize(text, add_special=True, parse_special=parse_special) == expected, text


def test_detokenizing_takes_the_added_space_off_again(ours: Any) -> None:
    tokens = ours.tokenize("Hello, 世界\n", add_special=False, parse_special=False)
    assert b"".join(map(ours.piece, tokens)) == " Hello, 世界\n".encode()
    assert ours.detokenize(tokens) == "Hello, 世界\n"


def test_added_tokens_are_tokens_of_their_own(tmp_path: Path, model: bytes) -> None:
    added = {"600": {"content": "<|end|>", "special": True}, "603": {"content": "<think>", "special": False}}
    config = {"added_tokens_decoder": added, "eos_token": "<|end|>", "add_bos_token": False}
    vocabulary = load_tokenizer(write(tmp_path, model, tokenizer_config=config))
    assert (vocabulary.size, vocabulary.eos, vocabulary.adds_bos) == (604, 600, False)
    assert vocabulary.end_tokens == {600, 2}  # `</s>` is known by its spelling
    assert vocabulary.tokenize("<|end|><think>", add_special=True, parse_special=True) == [600, 603]
    assert 600 not in vocabulary.tokenize("<|end|>", add_special=False, parse_special=False)
    assert vocabulary.tokenize("<think>", add_special=False, parse_special=False) == [603]
    assert (vocabulary.piece(600), vocabulary.piece(603), vocabulary.special_piece(601)) == (b"", b"<think>", b"")


def test_the_models_own_bos_counts_unless_the_configuration_says_that_there_is_none(tmp_path: Path, model: bytes) -> None:
    vocabulary = load_tokenizer(write(tmp_path, model))
    assert (vocabulary.bos, vocabulary.adds_bos, vocabulary.eos) == (1, True, 2)
    vocabulary = load_tokenizer(write(tmp_path, model, tokenizer_config={"bos_token": None, "add_bos_token": True}))
    assert (vocabulary.bos, vocabulary.adds_bos, vocabulary.eos) == (-1, False, 2)


def test_an_added_token_without_a_row_is_refused(tmp_path: Path, model: bytes) -> None:
    config = {"added_tokens_decoder": {"600": {"content": "<|end|>"}}}
    with pytest.raises(TokenizerError, match="the tokenizer has 601 tokens, but the model has 600"):
        load_tokenizer(write(tmp_path, model, tokenizer_config=config, config={"vocab_size": 600}))


def test_a_file_that_is_no_sentencepiece_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TokenizerError, match=r"^'\w+': tokenizer.model is no SentencePiece model: "):
        load_tokenizer(write(tmp_path, b"IQ== 0\nIg== 1\n"))
