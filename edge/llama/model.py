"""A loaded model: its weights and what it says about itself."""

import ctypes
import time
from typing import Any

from backends.child.errors import LoadError
from backends.types import Capability, ModelCard
from edge.llama.native import complaints, lib
from edge.llama.vocabulary import Vocabulary


class Model:
    """Weights in memory. Free it with `close` after every context that uses it."""

    def __init__(self, path: str, *, gpu_layers: int, mmap: bool) -> None:
        """Raises LoadError when llama.cpp cannot. `gpu_layers` -1 puts all of them on a GPU if there is one."""
        params = lib.llama_model_default_params()
        params.n_gpu_layers = 2**31 - 1 if gpu_layers < 0 else gpu_layers
        params.load_mode = lib.llama_load_mode_from_str(b"mmap" if mmap else b"none")
        self.handle: Any = lib.llama_model_load_from_file(path.encode(), params)
        if not self.handle:
            raise LoadError(f"llama.cpp could not load {path}: {complaints()}")
        self.vocabulary = Vocabulary(lib.llama_model_get_vocab(self.handle))
        self.context_train = int(lib.llama_model_n_ctx_train(self.handle))
        self.window = int(lib.llama_model_n_swa(self.handle))
        self.embedding_size = int(lib.llama_model_n_embd_out(self.handle))
        self.is_recurrent = bool(lib.llama_model_is_recurrent(self.handle) or lib.llama_model_is_hybrid(self.handle))
        self.architecture = self._metadata("general.architecture") or "unknown"
        is_causal = self._metadata(f"{self.architecture}.attention.causal") != "false"
        self.can_generate = bool(lib.llama_model_has_decoder(self.handle)) and is_causal

    def _metadata(self, key: str) -> str | None:
        buffer = ctypes.create_string_buffer(256)
        length = lib.llama_model_meta_val_str(self.handle, key.encode(), buffer, len(buffer))
        return buffer.value.decode("utf-8", "replace") if length >= 0 else None

    @property
    def chat_template(self) -> str | None:
        """The model's own Jinja template, or None."""
        text = lib.llama_model_chat_template(self.handle, None)
        return text.decode("utf-8", "replace") if text else None

    def card(self, name: str, context: int) -> ModelCard:
        """Describe the model as served under `name`, with `context` tokens per request."""
        capabilities: tuple[Capability, ...] = ("chat", "completion", "embedding") if self.can_generate else ("embedding",)
        quantization = lib.llama_ftype_name(lib.llama_model_ftype(self.handle))
        return ModelCard(
            id=name,
            created=int(time.time()),
            capabilities=capabilities,
            context_length=context,
            vocab_size=self.vocabulary.size,
            parameters=int(lib.llama_model_n_params(self.handle)),
            size_bytes=int(lib.llama_model_size(self.handle)),
            architecture=self.architecture,
            quantization=quantization.decode() if quantization else None,
        )

    def close(self) -> None:
        """Free the weights."""
        if self.handle:
            lib.llama_model_free(self.handle)
            self.handle = None
