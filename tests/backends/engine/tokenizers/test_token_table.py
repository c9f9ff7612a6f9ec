"""What tokens stand for, and the digest that tells vocabularies apart."""

from dataclasses import replace
from hashlib import sha256

import pytest

from backends.engine.tokenizers.tokens import Kind, TokenTable, byte_letters

SPM = TokenTable(
    ["<unk>", "<s>", "<0x0A>", "\u2581the", "  ", "[gone]", "<tool_call>", "<fim>"],
    [Kind.UNKNOWN, Kind.CONTROL, Kind.BYTE, Kind.NORMAL, Kind.USER_DEFINED, Kind.UNUSED, Kind.CONTROL, Kind.NORMAL],
    "spm",
    frozenset({7}),
)


def test_sentencepiece_spells_spaces_and_bytes() -> None:
    assert [SPM.spelled(token) for token in range(len(SPM))] == [
        *(b"<unk>", b"<s>", b"\n", b" the", b"  ", b"", b"<tool_call>", b"<fim>")
    ]


def test_control_tokens_are_not_shown_but_for_the_markers_of_tool_calls() -> None:
    assert [SPM.shown(token) for token in range(len(SPM))] == [b"", b"", b"\n", b" the", b"  ", b"", b"<tool_call>", b""]


def test_a_token_counts_as_control_by_its_kind_or_because_it_is_known() -> None:
    assert [SPM.is_control(token) for token in range(len(SPM))] == [True, True, False, False, False, False, True, True]
    assert SPM.control() == {"<unk>": 0, "<s>": 1, "<tool_call>": 6, "<fim>": 7}
    assert SPM.user_defined() == {"  ": 4}
    assert "<fim>" in SPM.mergeable()
    assert "<s>" not in SPM.mergeable()


def test_byte_letters_are_256_and_printable() -> None:
    letters = byte_letters()
    assert sorted(letters.values()) == list(range(256))
    assert all(letter.isprintable() for letter in letters)
    assert [letters[letter] for letter in "aÿĠĊ"] == [0x61, 0xFF, 0x20, 0x0A]


@pytest.mark.parametrize(("text", "spelled"), [("Ġthe", b" the"), ("æĹ¥", "日".encode()), ("日本", "日本".encode())])
def test_byte_level_tokens_are_spelled_in_letters_unless_they_are_plain_text(text: str, spelled: bytes) -> None:
    assert TokenTable([text], [Kind.NORMAL], "byte level").spelled(0) == spelled


def test_user_defined_tokens_are_spelled_as_they_are() -> None:
    assert TokenTable(["Ġø"], [Kind.USER_DEFINED], "byte level").spelled(0) == "Ġø".encode()


def test_the_digest_knows_every_byte_and_every_control_token() -> None:
    variants = [
        SPM,
        replace(SPM, texts=[*SPM.texts[:3], "\u2581The", *SPM.texts[4:]]),
        replace(SPM, kinds=[*SPM.kinds[:3], Kind.CONTROL, *SPM.kinds[4:]]),
        replace(SPM, texts=SPM.texts[:-1], kinds=SPM.kinds[:-1]),
        replace(SPM, texts=["<unk", "><s>", *SPM.texts[2:]]),
    ]
    assert len({table.digest() for table in variants}) == len(variants)


def test_the_digest_does_not_depend_on_how_a_file_writes_a_token() -> None:
    byte_level = TokenTable(["Ġthe", "\u0120"], [Kind.NORMAL, Kind.NORMAL], "byte level")
    spm = TokenTable(["\u2581the", "<0x20>"], [Kind.NORMAL, Kind.BYTE], "spm")
    assert byte_level.digest() == spm.digest()
    assert byte_level.digest() == sha256(b"0 4: the0 1: ").hexdigest()


def test_tokens_behind_the_last_one_in_use_only_pad_the_table() -> None:
    assert SPM.num_used == len(SPM)
    kinds = [*SPM.kinds, Kind.UNUSED, Kind.UNDEFINED]
    assert replace(SPM, texts=[*SPM.texts, "[PAD8]", ""], kinds=kinds).num_used == len(SPM)
    assert TokenTable([], [], "spm").num_used == 0
