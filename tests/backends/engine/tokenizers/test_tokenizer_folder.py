"""`tokenizer.json` folders: the same tokens as transformers, whatever the file asks for, and what other files decide."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from many_texts import WORDS, texts
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from backends.engine.tokenizers.errors import TokenizerError
from backends.engine.tokenizers.load import load_tokenizer
from backends.errors import Rejected

transformers = pytest.importorskip("transformers")

SPECIAL = ["<s>", "</s>", "<|user|>"]
CORPUS = [
    "".join(WORDS),
    " the quick brown fox",
    "Hello world, hello tokens",
    "def f(x):\n    return x + 1234",
    "日本語 日本",
] * 3


def _byte_level() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=500, special_tokens=SPECIAL, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(CORPUS, trainer)
    # Both kinds, and every way in which they may take their surroundings with them.
    tokenizer.add_tokens([AddedToken("<think>", normalized=False), AddedToken("ing", single_word=True), "wor", "é!"])
    tokenizer.add_special_tokens([AddedToken("<mask>", lstrip=True, rstrip=True)])
    return tokenizer


def _metaspace() -> Tokenizer:
    byte_tokens = [f"<0x{byte:02X}>" for byte in range(256)]
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="first", split=False)
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    tokenizer.decoder = decoders.Sequence(steps)
    special = ["<unk>", *SPECIAL, *byte_tokens]
    tokenizer.train_from_iterator(CORPUS, trainers.BpeTrainer(vocab_size=600, special_tokens=special, show_progress=False))
    made = json.loads(tokenizer.to_str())
    made["added_tokens"] = [token for token in made["added_tokens"] if token["content"] not in byte_tokens]
    tokenizer = Tokenizer.from_str(json.dumps(made))
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return tokenizer


FAMILIES = {"byte level": _byte_level, "metaspace": _metaspace}


def write(folder: Path, tokenizer: Tokenizer, **files: Any) -> Path:
    """Write a folder: a `tokenizer.json`, and JSON files by the beginning of their name."""
    tokenizer.save(str(folder / "tokenizer.json"))
    files.setdefault(
        "tokenizer_config", {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": "</s>"}
    )
    for name, content in files.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    return folder


@pytest.fixture(scope="module", params=FAMILIES.values(), ids=FAMILIES.keys())
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("folder"), request.param())


@pytest.fixture(scope="module")
def both(folder: Path) -> tuple[Any, Any]:
    return load_tokenizer(folder), transformers.AutoTokenizer.from_pretrained(folder)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=texts([*SPECIAL, "<mask>", " <mask> ", "<think>", "ing", "wor", "<unk>", "<0x41>"]))
def test_any_text_becomes_the_tokens_that_transformers_makes(both: tuple[Any, Any], text: str) -> None:
    ours, theirs = both
    assert ours.tokenize(text, add_special=True, parse_special=True) == theirs.encode(text)
    plain = ours.tokenize(text, add_special=False, parse_special=False)
    assert plain == theirs.encode(text, add_special_tokens=False, split_special_tokens=True)
    assert ours.detokenize(plain) == theirs.decode(plain)
    assert not any(map(ours.is_control, plain))


def test_control_tokens_are_the_special_ones(both: tuple[Any, Any]) -> None:
    ours, theirs = both
    assert set(ours.control_texts()) - {"<unk>"} == {*SPECIAL, "<mask>"} & theirs.get_vocab().keys()
    assert [ours.piece(ours.tokenize(text, add_special=False, parse_special=True)[0]) for text in SPECIAL] == [b""] * 3


def test_an_added_token_is_the_text_that_it_is_found_by(tmp_path: Path) -> None:
    vocabulary = load_tokenizer(write(tmp_path, _byte_level()))
    (token,) = vocabulary.tokenize("é!", add_special=False, parse_special=False)
    assert vocabulary.piece(token) == "é!".encode()  # where transformers shows the byte that the letter é stands for


def test_vocabulary_facts(folder: Path) -> None:
    vocabulary = load_tokenizer(folder)
    has_template = b"TemplateProcessing" in (folder / "tokenizer.json").read_bytes()
    assert (vocabulary.special_piece(vocabulary.bos), vocabulary.special_piece(vocabulary.eos)) == (b"<s>", b"</s>")
    assert vocabulary.adds_bos == has_template
    assert vocabulary.end_tokens == {vocabulary.eos}
    assert vocabulary.size == Tokenizer.from_file(str(folder / "tokenizer.json")).get_vocab_size()


BytesFolder = Callable[..., Path]


@pytest.fixture
def made(tmp_path: Path) -> BytesFolder:
    """Makes a byte-level folder with other files beside it."""
    return lambda **files: write(tmp_path, _byte_level(), **files)


def test_cutting_and_filling_of_the_training_are_off(tmp_path: Path) -> None:
    tokenizer = _byte_level()
    tokenizer.enable_truncation(2)
    tokenizer.enable_padding(length=100)
    assert (
        len(load_tokenizer(write(tmp_path, tokenizer)).tokenize("a b c d e", add_special=True, parse_special=True)) == 5 * 2 - 1
    )


def test_ends_are_all_that_any_file_names_and_what_is_spelled_like_one(tmp_path: Path) -> None:
    tokenizer = _byte_level()
    tokenizer.add_special_tokens(["<|im_end|>", "<|fim_pad|>"])
    ids = tokenizer.get_vocab()
    path = write(tmp_path, tokenizer, config={"eos_token_id": 1}, generation_config={"eos_token_id": [1, 7]})
    assert load_tokenizer(path).end_tokens == {1, 7, ids["<|im_end|>"], ids["<|fim_pad|>"]}


def test_tokens_that_the_configuration_leaves_out_come_from_the_model(made: BytesFolder) -> None:
    vocabulary = load_tokenizer(made(tokenizer_config={}, config={"bos_token_id": 2, "eos_token_id": [1, 5]}))
    assert (vocabulary.bos, vocabulary.eos, vocabulary.end_tokens) == (2, 1, {1, 5})


def test_a_token_that_is_null_does_not_exist(made: BytesFolder) -> None:
    vocabulary = load_tokenizer(made(tokenizer_config={"bos_token": None, "add_bos_token": True}, config={"bos_token_id": 2}))
    assert (vocabulary.bos, vocabulary.adds_bos, vocabulary.eos) == (-1, False, -1)


def test_the_configuration_may_ask_for_bos_and_eos(made: BytesFolder) -> None:
    config = {"bos_token": {"content": "<s>"}, "eos_token": "</s>", "add_bos_token": True, "add_eos_token": True}
    vocabulary = load_tokenizer(made(tokenizer_config=config))
    tokens = vocabulary.tokenize("a", add_special=True, parse_special=True)
    assert [vocabulary.special_piece(token) for token in tokens] == [b"<s>", b"a", b"</s>"]
    assert vocabulary.adds_bos


def test_templates_are_found_where_transformers_looks(made: BytesFolder) -> None:
    assert load_tokenizer(made()).chat_template is None
    assert load_tokenizer(made(tokenizer_config={"chat_template": "one"})).chat_template == "one"
    several = [{"name": "tool_use", "template": "two"}, {"name": "default", "template": "three"}]
    path = made(tokenizer_config={"chat_template": several})
    assert load_tokenizer(path).chat_template == "three"
    (path / "chat_template.jinja").write_text("four")
    assert load_tokenizer(path).chat_template == "four"


def test_rows_without_a_token_are_unused_tokens(made: BytesFolder) -> None:
    vocabulary = load_tokenizer(made(config={"vocab_size": 600}))
    assert vocabulary.size == 600
    assert (vocabulary.special_piece(599), vocabulary.is_control(599)) == (b"", False)


def test_added_tokens_without_a_row_are_plain_text(made: BytesFolder) -> None:
    size = _byte_level().get_vocab_size()
    vocabulary = load_tokenizer(made(config={"model_type": "x", "text_config": {"vocab_size": size - 1}}))
    assert vocabulary.size == size - 1
    tokens = vocabulary.tokenize("<mask>", add_special=False, parse_special=True)
    assert len(tokens) > 1
    assert vocabulary.detokenize(tokens) == "<mask>"


def test_half_a_surrogate_pair_is_rejected(both: tuple[Any, Any]) -> None:
    with pytest.raises(Rejected, match=r"^character 1 of the text is half of a surrogate pair$"):
        both[0].tokenize("a\ud800b", add_special=False, parse_special=False)


def test_a_pattern_that_backtracks_without_end_rejects_the_text(tmp_path: Path) -> None:
    tokenizer = _byte_level()
    hostile = pre_tokenizers.Split(__import__("tokenizers").Regex("(a|a)*$"), "isolated")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([hostile, pre_tokenizers.ByteLevel(use_regex=False)])
    vocabulary = load_tokenizer(write(tmp_path, tokenizer))
    with pytest.raises(Rejected, match=r"^the text cannot be tokenised: .*retry-limit"):
        vocabulary.tokenize("a" * 40 + "b", add_special=False, parse_special=False)
    assert vocabulary.detokenize(vocabulary.tokenize("xyz", add_special=False, parse_special=False)).strip() == "xyz"


def test_a_folder_without_a_tokenizer_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TokenizerError, match=r"the folder has neither tokenizer.json nor tokenizer.model$"):
        load_tokenizer(tmp_path)
