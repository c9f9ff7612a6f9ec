"""The vocabularies that several tests of this folder share, loaded once."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from llama_vocabulary import llama_vocabulary

from backends.engine.tokenizers.load import load_tokenizer
from backends.engine.tokenizers.vocabulary import ModelVocabulary
from edge.llama.vocabulary import Vocabulary
from tests.models import SMOLLM2, gemma3

CI = Path(__file__).resolve().parents[4] / ".ci"


@pytest.fixture(scope="session")
def vectors() -> Path:
    """The folder of llama.cpp's vocabularies, as `make test` has fetched it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(CI))
        from vocabularies import vocabularies_path
    if not vocabularies_path().is_dir():
        pytest.skip("llama.cpp's vocabularies have not been fetched")
    return vocabularies_path()


@pytest.fixture(scope="session", params=["SmolLM2", "Gemma 3"])
def model(request: pytest.FixtureRequest) -> Path:
    """A real model of each family of tokenizers."""
    return SMOLLM2 if request.param == "SmolLM2" else gemma3()


@pytest.fixture(scope="session")
def ours(model: Path) -> ModelVocabulary:
    return load_tokenizer(model)


@pytest.fixture(scope="session")
def special_texts(ours: ModelVocabulary) -> list[str]:
    """Whole and broken spellings of special tokens."""
    control = ours.control_texts()
    return [*control[:40], *control[-5:], *(text[:-1] for text in control[:5]), "<table>", "</td>", "\n\n\n\n", "[multimodal]"]


@pytest.fixture(scope="session")
def bytes_of(ours: ModelVocabulary) -> set[int]:
    """The bytes that are tokens by themselves: SmolLM2 lacks some that no text of its training had."""
    pieces = (ours.special_piece(token) for token in range(ours.size))
    return {piece[0] for piece in pieces if len(piece) == 1}


@pytest.fixture(scope="session")
def theirs(model: Path) -> Iterator[Vocabulary]:
    """The same by llama.cpp."""
    with llama_vocabulary(model) as vocabulary:
        yield vocabulary
