"""An exported tokenizer is the same to transformers, and to us when we read it back."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from many_texts import texts

from backends.engine.tokenizers.errors import TokenizerError
from backends.engine.tokenizers.export import write_tokenizer
from backends.engine.tokenizers.load import load_tokenizer
from backends.engine.tokenizers.vocabulary import ModelVocabulary

transformers = pytest.importorskip("transformers")

# The one token that a file calls plain text and llama.cpp the end of one.
HTML = "</s>"


@pytest.fixture(scope="session")
def exported(model: Path, ours: ModelVocabulary, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tokenizer of a real model in a folder, beside the configuration that an exported model has."""
    folder = tmp_path_factory.mktemp("exported")
    write_tokenizer(model, folder)
    family = "gemma3_text" if "gemma" in model.name else "llama"
    (folder / "config.json").write_text(json.dumps({"model_type": family, "vocab_size": ours.size}))
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": sorted(ours.end_tokens)}))
    return folder


@pytest.fixture(scope="session")
def readers(exported: Path) -> tuple[ModelVocabulary, Any]:
    """The folder as we read it, and as transformers does."""
    return load_tokenizer(exported), transformers.AutoTokenizer.from_pretrained(exported)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_text_becomes_the_same_tokens(
    ours: ModelVocabulary, readers: tuple[ModelVocabulary, Any], special_texts: list[str], data: st.DataObject
) -> None:
    again, theirs = readers
    text = data.draw(texts([text for text in special_texts if text != HTML])).replace(HTML, "")
    for parse_special in (False, True):
        tokens = ours.tokenize(text, add_special=True, parse_special=parse_special)
        assert again.tokenize(text, add_special=True, parse_special=parse_special) == tokens
    assert theirs.encode(text) == tokens
    assert theirs.decode(tokens) == ours.detokenize(tokens) == again.detokenize(tokens)


def test_the_vocabulary_comes_back_whole(ours: ModelVocabulary, readers: tuple[ModelVocabulary, Any]) -> None:
    again, theirs = readers
    for name in ("size", "bos", "eos", "adds_bos", "end_tokens", "chat_template"):
        assert getattr(again, name) == getattr(ours, name), name
    assert again.digest() == ours.digest()
    assert set(ours.control_texts()) - set(again.control_texts()) <= {HTML}
    assert (len(theirs), theirs.bos_token_id, theirs.eos_token_id) == (ours.size, ours.bos, ours.eos)
    assert theirs.chat_template == ours.chat_template


@pytest.mark.parametrize("model", ["SmolLM2"], indirect=True)
def test_transformers_renders_and_reads_a_conversation(ours: ModelVocabulary, readers: tuple[ModelVocabulary, Any]) -> None:
    theirs = readers[1]
    messages = [{"role": "user", "content": "Hi!"}]
    prompt = theirs.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    tokens = theirs.apply_chat_template(messages, add_generation_prompt=True)["input_ids"]
    assert ours.tokenize(prompt, add_special=False, parse_special=True) == tokens


@pytest.mark.parametrize("name", ["llama-spm", "mpt", "deepseek-coder"])
def test_vocabularies_of_other_families_come_back_whole(vectors: Path, tmp_path: Path, name: str) -> None:
    path = vectors / f"ggml-vocab-{name}.gguf"
    write_tokenizer(path, tmp_path)
    ours, again = load_tokenizer(path), load_tokenizer(tmp_path)
    assert again.digest() == ours.digest()
    assert (again.bos, again.eos, again.adds_bos) == (ours.bos, ours.eos, ours.adds_bos)
    for text in Path(f"{path}.inp").read_bytes().decode().split("\n__ggml_vocab_test__\n"):
        expected = ours.tokenize(text, add_special=True, parse_special=False)
        assert again.tokenize(text, add_special=True, parse_special=False) == expected, text


def test_the_tokenizer_of_a_folder_is_copied(exported: Path, tmp_path: Path) -> None:
    write_tokenizer(exported, tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["tokenizer.json", "tokenizer_config.json"]
    assert (tmp_path / "tokenizer.json").read_bytes() == (exported / "tokenizer.json").read_bytes()


def test_a_folder_without_a_tokenizer_is_refused(tmp_path: Path) -> None:
    (tmp_path / "tokenizer_config.json").write_text("{}")
    with pytest.raises(TokenizerError, match=r"the folder has neither tokenizer.json nor tokenizer.model"):
        write_tokenizer(tmp_path, tmp_path)
