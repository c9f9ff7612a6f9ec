"""What an upstream's list of models says about one of them. Names of the fields: vLLM, llama-server, and Baton itself."""

from typing import Any

from msgspec import Struct

from backends.remote.json_fields import count, dicts, read_object, text

# These render a last assistant message as a finished turn unless they are told to continue it.
_EXPLICIT_CONTINUE = {"vllm", "sglang"}
_CONTEXT_FIELDS = ("max_model_len", "context_length", "context_window", "max_context_length")


class UpstreamModel(Struct, frozen=True, kw_only=True):
    """What is known; 0 and empty mean unknown. Sizes are in tokens, parameters and bytes."""

    context_length: int = 0
    vocab_size: int = 0
    parameters: int = 0
    size_bytes: int = 0
    architecture: str = ""
    quantization: str = ""
    explicit_continue: bool = False


def read_model(body: bytes, model: str) -> UpstreamModel:
    """Find a model in the answer of GET /models; where only one is listed, it is meant whatever its name.

    Raises:
        Failed: the answer is not JSON.
    """
    listed = dicts(read_object(body, "answer").get("data"))
    entry = next((item for item in listed if item.get("id") == model), listed[0] if len(listed) == 1 else {})
    raw = entry.get("meta")
    meta: dict[str, Any] = raw if isinstance(raw, dict) else {}
    context = next((length for name in _CONTEXT_FIELDS if (length := count(entry.get(name)))), 0)
    return UpstreamModel(
        context_length=context or count(meta.get("n_ctx")) or count(meta.get("n_ctx_train")),
        vocab_size=count(meta.get("n_vocab")),
        parameters=count(meta.get("n_params")),
        size_bytes=count(meta.get("size")),
        architecture=text(meta.get("architecture")),
        quantization=text(meta.get("quantization")),
        explicit_continue=text(entry.get("owned_by")).lower() in _EXPLICIT_CONTINUE,
    )
