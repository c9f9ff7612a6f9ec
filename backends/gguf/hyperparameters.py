"""Checks of a model's numbers: those that llama.cpp reads before it allocates, and on which it would abort the whole process.

Source: `llama_model_base::load_hparams` and `LLAMA_MAX_LAYERS`, `LLAMA_MAX_EXPERTS` of llama.cpp (its `GGML_ASSERT`s end the
process, so each has its twin here), `clip.cpp` for projectors.
"""

from backends.gguf.architectures import RECURRENT_ARCHITECTURES
from backends.gguf.errors import GgufError
from backends.gguf.fields import choice, integer, per_layer, shown_key
from backends.gguf.header import Header

MAX_LAYERS = 512
MAX_EXPERTS = 1_024
_MAX_INT32 = 2**31 - 1
_MAX_WIDTH = 2**20  # embedding length; published models stay below 2**15
_MAX_FEED_FORWARD = 2**24
_MAX_HEADS = 65_536

# Keys with one integer, and its range. A range that starts at 1 excludes a 0 that native code divides by.
_SCALARS = {
    "context_length": (1, _MAX_INT32),
    "embedding_length": (1, _MAX_WIDTH),
    "embedding_length_out": (0, _MAX_WIDTH),
    "vocab_size": (1, 2**24),
    "attention.key_length": (1, _MAX_HEADS),
    "attention.value_length": (1, _MAX_HEADS),
    "attention.key_length_swa": (1, _MAX_HEADS),
    "attention.value_length_swa": (1, _MAX_HEADS),
    "attention.sliding_window": (0, _MAX_INT32),
    "expert_count": (0, MAX_EXPERTS),
    "pooling_type": (0, 4),
}
_REQUIRED = ("block_count", "context_length", "embedding_length")


def check_model(header: Header, architecture: str, *, is_complete: bool) -> None:
    """Check the numbers of a model. Only of a complete one (more than a vocabulary or an adapter) is any number required.

    Raises:
        GgufError: a number is missing, of another type, out of range, or at odds with another.
    """
    for name in _REQUIRED:
        if is_complete and f"{architecture}.{name}" not in header.metadata:
            raise GgufError(f"{shown_key(f'{architecture}.{name}')} is missing")
    for name, (low, high) in _SCALARS.items():
        integer(header, f"{architecture}.{name}", low, high)
    layers = integer(header, f"{architecture}.block_count", 1, MAX_LAYERS)
    integer(header, f"{architecture}.nextn_predict_layers", 0, layers or MAX_LAYERS)
    per_layer(header, f"{architecture}.feed_forward_length", 0, _MAX_FEED_FORWARD, layers)
    _check_heads(header, architecture, layers)
    _check_experts(header, architecture, layers)
    choice(
        header,
        f"{architecture}.rope.scaling.type",
        ("none", "linear", "yarn", "longrope"),
        "kind of RoPE scaling that is known",
    )


def check_projector(header: Header) -> None:
    """Check the numbers of an image or audio projector. Raises `GgufError` like `check_model`."""
    for side in ("clip.vision", "clip.audio"):
        layers = integer(header, f"{side}.block_count", 0, MAX_LAYERS)
        integer(header, f"{side}.embedding_length", 1, _MAX_WIDTH)
        integer(header, f"{side}.attention.head_count", 1 if layers else 0, _MAX_HEADS)
    for name in ("image_size", "patch_size"):
        integer(header, f"clip.vision.{name}", 1, 65_536)


def _check_heads(header: Header, architecture: str, layers: int | None) -> None:
    key, key_kv = f"{architecture}.attention.head_count", f"{architecture}.attention.head_count_kv"
    heads = per_layer(header, key, 0, _MAX_HEADS, layers)
    heads_kv = per_layer(header, key_kv, 0, _MAX_HEADS, layers)
    if heads is None:
        return
    # Layers without attention exist in hybrid models; a model without any attention is another architecture.
    if not any(heads) and architecture not in RECURRENT_ARCHITECTURES:
        raise GgufError(f"{shown_key(key)} is 0 in every layer, expected at least 1")
    for layer, (q, kv) in enumerate(zip(heads, heads_kv or (), strict=False)):
        if kv and q % kv:
            raise GgufError(f"layer {layer} has {q:,} heads, not a multiple of its {kv:,} key/value heads")


def _check_experts(header: Header, architecture: str, layers: int | None) -> None:
    experts = integer(header, f"{architecture}.expert_count", 0, MAX_EXPERTS) or 0
    if architecture in ("hunyuan-dense", "hunyuan_vl") and experts <= 1:
        return  # dense files of this family carry a count of 1; the loader forgets it
    used = max(per_layer(header, f"{architecture}.expert_used_count", 0, MAX_EXPERTS, layers) or (0,))
    groups = integer(header, f"{architecture}.expert_group_count", 0, MAX_EXPERTS) or 0
    groups_used = integer(header, f"{architecture}.expert_group_used_count", 0, MAX_EXPERTS) or 0
    if used > experts or (experts and not used):
        raise GgufError(f"{shown_key(f'{architecture}.expert_used_count')} is {used:,} of {experts:,} experts")
    split = groups > 1 and (experts % groups != 0 or not 0 < groups_used < groups)
    if groups and (groups >= experts or split):
        raise GgufError(
            f"{shown_key(f'{architecture}.expert_group_count')} is {groups:,} with {groups_used:,} used, which does not fit "
            f"{experts:,} experts"
        )
