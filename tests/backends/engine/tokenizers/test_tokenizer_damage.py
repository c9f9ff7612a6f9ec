"""Damaged and hostile tokenizers: one clear `TokenizerError` each, before anything large is made."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from backends.engine.tokenizers.errors import TokenizerError
from backends.engine.tokenizers.load import load_tokenizer
from backends.engine.tokenizers.tokens import MAX_TOKENS
from tests.backends.gguf.build import Gguf, numbers, scalar, small_model, text, texts

BYTES = [f"<0x{byte:02X}>" for byte in range(256)]


def _spm(**keys: bytes) -> Gguf:
    """A vocabulary of 260 tokens that loads."""
    tokens = ["<unk>", "<s>", "</s>", *BYTES, "a"]
    file = small_model()
    file.tensors = []
    file.keys |= {
        "tokenizer.ggml.tokens": texts(tokens),
        "tokenizer.ggml.scores": numbers("f32", [0.0] * len(tokens)),
        "tokenizer.ggml.token_type": numbers("i32", [2, 3, 3, *[6] * 256, 1]),
    }
    file.keys |= {f"tokenizer.ggml.{name}": value for name, value in keys.items()}
    return file


def _bpe(**keys: bytes) -> Gguf:
    """A byte-level vocabulary that loads."""
    plain = {
        "model": text("gpt2"),
        "pre": text("gpt-2"),
        "tokens": texts(["a", "b", "ab", "<s>"]),
        "token_type": numbers("i32", [1, 1, 1, 3]),
        "merges": texts(["a b"]),
    }
    file = _spm(**{**plain, **keys})
    del file.keys["tokenizer.ggml.scores"]
    return file


def test_the_files_that_are_damaged_below_load_when_they_are_whole(tmp_path: Path) -> None:
    path = tmp_path / "whole.gguf"
    for file, tokens in ((_spm(), [1, 0xE2 + 3, 0x96 + 3, 0x81 + 3, 259]), (_bpe(), [1, 2])):
        path.write_bytes(file.to_bytes())
        assert load_tokenizer(path).tokenize("a" if len(tokens) > 2 else "ab", add_special=True, parse_special=True) == tokens


def test_a_control_token_that_is_spelled_like_a_word_is_not_that_word(tmp_path: Path) -> None:
    path = tmp_path / "word.gguf"
    path.write_bytes(_bpe(pre=text("llama-bpe"), tokens=texts(["a", "b", "ba", "<s>"]), merges=texts([])).to_bytes())
    assert load_tokenizer(path).tokenize("ba", add_special=False, parse_special=False) == [
        2
    ]  # a word that is a token is that token
    file = _bpe(pre=text("llama-bpe"), tokens=texts(["a", "b", "ba", "<s>"]), merges=texts([]))
    file.keys["tokenizer.ggml.token_type"] = numbers("i32", [1, 1, 3, 3])
    path.write_bytes(file.to_bytes())
    assert load_tokenizer(path).tokenize("ba", add_special=False, parse_special=False) == [1, 0]
    assert load_tokenizer(path).tokenize("ba", add_special=False, parse_special=True) == [2]


NAN = numbers("f32", [0.0] * 259 + [float("nan")])
GGUFS = {
    "kind": (
        _spm(model=text("rwkv")),
        "tokenizers of kind 'rwkv' are not supported; the supported kinds are 'llama' and 'gpt2'",
    ),
    "none": (_spm(model=text("no_vocab")), "tokenizers of kind 'no_vocab' are not supported"),
    "lengths": (_spm(scores=numbers("f32", [0.0] * 9)), "tokenizer.ggml.scores has 9 entries, but there are 260 tokens"),
    "score": (_spm(scores=NAN), r"tokenizer.ggml.scores\[259\] is nan, expected a finite number"),
    "bytes": (_spm(token_type=numbers("i32", [2, 3, 3, *[6] * 255, 1, 1])), "the vocabulary is no SentencePiece model: "),
    "unknown": (_spm(token_type=numbers("i32", [1, 3, 3, *[6] * 256, 1])), "the vocabulary has no unknown token"),
    "eos": (_spm(eos_token_id=scalar("u32", 260)), "eos_token_id is 260, expected 0 to 259"),
    "pre": (_bpe(pre=text("a\nb")), r"the pre-tokenizer 'a\\nb' is not supported"),
    "merge": (
        _bpe(merges=texts(["a b", "ab"])),
        r"tokenizer.ggml.merges\[1\] is 'ab', expected two tokens and a space between",
    ),
    "merged": (_bpe(merges=texts(["b a"])), "tokenizer.ggml.merges do not fit the tokens: .*`ba` out of vocabulary"),
}


@pytest.mark.parametrize(("file", "message"), GGUFS.values(), ids=GGUFS.keys())
def test_a_damaged_gguf_vocabulary_is_refused(tmp_path: Path, file: Gguf, message: str) -> None:
    path = tmp_path / "broken.gguf"
    path.write_bytes(file.to_bytes())
    with pytest.raises(TokenizerError, match=rf"^'broken.gguf': .*{message}"):
        load_tokenizer(path)


def test_bpe_without_merges_is_refused(tmp_path: Path) -> None:
    file = _bpe()
    del file.keys["tokenizer.ggml.merges"]
    (tmp_path / "broken.gguf").write_bytes(file.to_bytes())
    with pytest.raises(TokenizerError, match="merges is missing"):
        load_tokenizer(tmp_path / "broken.gguf")


def test_what_is_no_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TokenizerError, match="'nothing': cannot open the file: No such file"):
        load_tokenizer(tmp_path / "nothing")
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(TokenizerError, match=r"'tokenizer.json': file has 2 bytes"):
        load_tokenizer(tmp_path / "tokenizer.json")


def _json(model: dict[str, Any] | None = None, **parts: Any) -> str:
    plain = {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": []}
    return json.dumps({"version": "1.0", "added_tokens": [], **parts, "model": {**plain, **(model or {})}})


FOLDERS = {
    "empty": ({"tokenizer.json": ""}, "tokenizer.json: Input data was truncated"),
    "cut": ({"tokenizer.json": _json()[:-20]}, "tokenizer.json: Input data was truncated"),
    "latin": ({"tokenizer.json": b'{"version": "\xff"}'}, "tokenizer.json: "),
    "no model": ({"tokenizer.json": "{}"}, "tokenizer.json: .*Model missing"),
    "kind": (
        {"tokenizer.json": _json({"type": "WordLevel", "unk_token": "a"})},
        "a model of type WordLevel is not supported, only BPE",
    ),
    "parts": (
        {"tokenizer.json": _json({"end_of_word_suffix": "</w>"})},
        "tokens that are marked as parts of words are not supported",
    ),
    "no token": ({"tokenizer.json": _json({"vocab": {}})}, f"tokenizer.json has 0 tokens, expected 1 to {MAX_TOKENS:,}"),
    "far": (
        {"tokenizer.json": _json({"vocab": {"a": 4_000_000_000}})},
        "tokenizer.json has 4,000,000,001 tokens, expected 1 to ",
    ),
    "merge": ({"tokenizer.json": _json({"merges": [["a", "b"]]})}, "tokenizer.json: "),
    "deep": (
        {"tokenizer.json": _json(decoder=eval("{'type': 'Sequence', 'decoders': [" * 90 + "]}" * 90))},
        "tokenizer.json: ",
    ),
    "pattern": (
        {
            "tokenizer.json": _json(
                pre_tokenizer={"type": "Split", "pattern": {"Regex": "("}, "behavior": "Isolated", "invert": False}
            )
        },
        "tokenizer.json: ",
    ),
    "rows": ({"tokenizer.json": _json(), "config.json": '{"vocab_size": 1}'}, "tokenizer.json has 2 tokens, expected 1 to 1"),
    "vocab": (
        {"tokenizer.json": _json(), "config.json": '{"vocab_size": 99999999}'},
        "config.json: vocab_size is 99,999,999, expected",
    ),
    "type": (
        {"tokenizer.json": _json(), "config.json": '{"vocab_size": "1"}'},
        "config.json: Expected `int | null`, got `str`",
    ),
    "eos": (
        {"tokenizer.json": _json(), "generation_config.json": '{"eos_token_id": [0, 2]}'},
        "token id 2 is outside the vocabulary of 2",
    ),
    "negative": (
        {"tokenizer.json": _json(), "config.json": '{"bos_token_id": -7}'},
        "token id -7 is outside the vocabulary of 2 tokens",
    ),
    "bos": (
        {"tokenizer.json": _json(), "tokenizer_config.json": '{"bos_token": "<s>"}'},
        "bos_token is '<s>', which is no token",
    ),
    "template": ({"tokenizer.json": _json(), "chat_template.jinja": b"\xff"}, "chat_template.jinja is not valid UTF-8"),
}


@pytest.mark.parametrize(("files", "message"), FOLDERS.values(), ids=FOLDERS.keys())
def test_a_damaged_folder_is_refused(tmp_path: Path, files: dict[str, str | bytes], message: str) -> None:
    for name, content in files.items():
        (tmp_path / name).write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(TokenizerError, match=rf"^'[\w-]+': .*{message}") as caught:
        load_tokenizer(tmp_path)
    assert len(str(caught.value)) < 500


def test_a_file_above_the_limit_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text(_json())
    with (tmp_path / "tokenizer_config.json").open("wb") as file:
        os.truncate(file.fileno(), 64 * 1024**2)
    with pytest.raises(TokenizerError, match=r"'tokenizer_config.json': .*67,108,864 bytes"):
        load_tokenizer(tmp_path)


@pytest.mark.parametrize("name", ["tokenizer.json", "config.json"])
def test_nothing_but_regular_files_is_read(tmp_path: Path, name: str) -> None:
    (tmp_path / "tokenizer.json").write_text(_json())
    (tmp_path / name).unlink(missing_ok=True)
    os.mkfifo(tmp_path / name)
    with pytest.raises(TokenizerError, match=f"'{name}': .*not a regular file"):
        load_tokenizer(tmp_path)


def test_links_out_of_the_folder_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "inside").mkdir()
    (tmp_path / "secret.json").write_text(_json())
    (tmp_path / "inside" / "tokenizer.json").symlink_to(tmp_path / "secret.json")
    with pytest.raises(TokenizerError, match=r"'tokenizer.json': .*outside the folder"):
        load_tokenizer(tmp_path / "inside")
