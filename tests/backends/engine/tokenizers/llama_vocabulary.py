"""llama.cpp's own vocabulary of a GGUF file, without its weights: what ours is compared with."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from edge.llama.native import lib, start
from edge.llama.vocabulary import Vocabulary


@contextmanager
def llama_vocabulary(path: Path) -> Iterator[Vocabulary]:
    """Load the vocabulary; it is valid inside the block."""
    start()
    params = lib.llama_model_default_params()
    params.vocab_only = True
    model = lib.llama_model_load_from_file(str(path).encode(), params)
    assert model, path
    try:
        yield Vocabulary(lib.llama_model_get_vocab(model))
    finally:
        lib.llama_model_free(model)
