"""Real models: any text becomes the tokens that llama.cpp makes of it, and the tokens say of themselves what llama.cpp says."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from many_texts import WORDS, texts

from backends.engine.tokenizers.vocabulary import ModelVocabulary
from edge.llama.vocabulary import Vocabulary

shared = settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.mark.parametrize("parse_special", [False, True], ids=["plain", "special"])
@shared
@given(data=st.data(), add_special=st.booleans())
def test_any_text_becomes_the_same_tokens(
    ours: ModelVocabulary,
    theirs: Vocabulary,
    special_texts: list[str],
    parse_special: bool,
    data: st.DataObject,
    add_special: bool,
) -> None:
    text = data.draw(texts(special_texts))
    expected = theirs.tokenize(text, add_special=add_special, parse_special=parse_special)
    assert ours.tokenize(text, add_special=add_special, parse_special=parse_special) == expected
    assert ours.detokenize(expected) == theirs.detokenize(expected)


def test_tokens_say_the_same_of_themselves(ours: ModelVocabulary, theirs: Vocabulary) -> None:
    for name in ("size", "bos", "eos", "adds_bos", "end_tokens"):
        assert getattr(ours, name) == getattr(theirs, name), name
    assert [ours.special_piece(token) for token in range(ours.size)] == [theirs.special_piece(t) for t in range(theirs.size)]
    assert [token for token in range(ours.size) if ours.is_control(token)] == [
        t for t in range(theirs.size) if theirs.is_control(t)
    ]
    some = [token for token in range(ours.size) if token % 8 == 0 or ours.is_control(token)]
    assert [ours.piece(token) for token in some] == [theirs.piece(token) for token in some]
    assert sorted(ours.control_texts()) == sorted(theirs.control_texts())


# U+2581 is how SentencePiece writes a space: it cannot be told from one afterwards.
@shared
@given(text=texts(without="\u2581"))
def test_the_pieces_of_plain_text_are_the_text(ours: ModelVocabulary, bytes_of: set[int], text: str) -> None:
    text = "".join(character for character in text if bytes_of.issuperset(character.encode()))
    tokens = ours.tokenize(text, add_special=False, parse_special=False)
    assert b"".join(map(ours.piece, tokens)) == text.encode()
    assert ours.detokenize(tokens) == text


def test_plain_text_never_becomes_a_control_token(ours: ModelVocabulary) -> None:
    for spelling in ours.control_texts():
        plain = ours.tokenize(f"a{spelling} b", add_special=False, parse_special=False)
        # `</s>` is a tag of HTML in Gemma's vocabulary, which llama.cpp takes for the end of a text.
        assert not any(ours.is_control(token) for token in plain) or spelling == "</s>", spelling


def test_around_a_byte_that_is_no_token_nothing_grows_together(ours: ModelVocabulary, theirs: Vocabulary) -> None:
    for character in map(chr, [*range(32), 127, 0xF8, 0x40000, 0x50000]):
        text = f".{character}<|x{character}y{character}{character} the{character}"
        expected = theirs.tokenize(text, add_special=False, parse_special=False)
        assert ours.tokenize(text, add_special=False, parse_special=False) == expected, ascii(character)


def test_a_long_text_is_tokenised_as_llama_cpp_does(ours: ModelVocabulary, theirs: Vocabulary) -> None:
    text = "".join(WORDS) * 50 + " " * 2_000 + "\n" * 500 + "a" * 3_000
    for parse_special in (False, True):
        expected = theirs.tokenize(text, add_special=False, parse_special=parse_special)
        assert ours.tokenize(text, add_special=False, parse_special=parse_special) == expected
