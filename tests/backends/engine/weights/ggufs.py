"""Writes small GGUF models with the `gguf` package: right ones, which a test then changes.

Hidden size 256 and heads of 64, so that every storage format fits.
"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from gguf import GGMLQuantizationType, GGUFWriter
from numpy.typing import NDArray

from backends.gguf.types import GGML_TYPES_BY_NAME

VOCAB, HIDDEN, WIDE, HEADS, KV_HEADS, HEAD_DIM, LAYERS = 48, 256, 512, 4, 2, 64, 2

Tensors = dict[str, tuple[str, NDArray[np.generic]]]
"""By name: the storage format and the data, bytes [rows, row bytes] of a block format."""

NUMBERS: dict[str, int | float] = {
    "block_count": LAYERS,
    "context_length": 128,
    "embedding_length": HIDDEN,
    "feed_forward_length": WIDE,
    "attention.head_count": HEADS,
    "attention.head_count_kv": KV_HEADS,
    "attention.key_length": HEAD_DIM,
    "attention.value_length": HEAD_DIM,
    "attention.layer_norm_rms_epsilon": 1e-5,
    "rope.freq_base": 50_000.0,
}


def floats(seed: int, *shape: int) -> NDArray[np.float32]:
    """Random numbers around 0."""
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def blocks(kind: str, seed: int, rows: int, columns: int) -> NDArray[np.uint8]:
    """Random bytes of a block format, with scales between 2**-14 and 2 so that all values are finite."""
    ggml = GGML_TYPES_BY_NAME[kind]
    random = np.random.default_rng(seed)
    raw = random.integers(0, 256, (rows * columns // ggml.block_size, ggml.block_bytes), dtype=np.uint8)
    halves = {"Q4_1": (0, 2), "Q5_1": (0, 2), "Q2_K": (80, 82), "Q3_K": (108,), "Q4_K": (0, 2), "Q5_K": (0, 2), "Q6_K": (208,)}
    for at in halves.get(kind, (0,)):
        raw[:, at + 1] = raw[:, at + 1] % 0x3C | raw[:, at + 1] & 0x80
    return raw.reshape(rows, -1)


def tensors(architecture: str = "llama", *, tied: bool = True) -> Tensors:
    """All tensors of a model in float32."""
    shapes: dict[str, tuple[int, ...]] = {"token_embd.weight": (VOCAB, HIDDEN), "output_norm.weight": (HIDDEN,)}
    if not tied:
        shapes["output.weight"] = (VOCAB, HIDDEN)
    for i in range(LAYERS):
        layer: dict[str, tuple[int, ...]] = {
            "attn_norm.weight": (HIDDEN,),
            "attn_q.weight": (HEADS * HEAD_DIM, HIDDEN),
            "attn_k.weight": (KV_HEADS * HEAD_DIM, HIDDEN),
            "attn_v.weight": (KV_HEADS * HEAD_DIM, HIDDEN),
            "attn_output.weight": (HIDDEN, HEADS * HEAD_DIM),
            "ffn_norm.weight": (HIDDEN,),
            "ffn_gate.weight": (WIDE, HIDDEN),
            "ffn_up.weight": (WIDE, HIDDEN),
            "ffn_down.weight": (HIDDEN, WIDE),
        }
        if architecture == "qwen2":
            layer |= {f"attn_{which}.bias": layer[f"attn_{which}.weight"][:1] for which in "qkv"}
        if architecture in ("qwen3", "gemma3"):
            layer |= {"attn_q_norm.weight": (HEAD_DIM,), "attn_k_norm.weight": (HEAD_DIM,)}
        if architecture == "gemma3":
            layer |= {"post_attention_norm.weight": (HIDDEN,), "post_ffw_norm.weight": (HIDDEN,)}
        shapes |= {f"blk.{i}.{name}": shape for name, shape in layer.items()}
    return {name: ("F32", floats(seed, *shape)) for seed, (name, shape) in enumerate(shapes.items())}


def write(path: Path, architecture: str, numbers: Mapping[str, object], content: Tensors) -> Path:
    """Write a file. Numbers are u32 or f32, lists arrays of them, strings strings."""
    writer = GGUFWriter(path, architecture)
    for name, value in numbers.items():
        key = f"{architecture}.{name}"
        if isinstance(value, bool):
            writer.add_bool(key, value)
        elif isinstance(value, int):
            writer.add_uint32(key, value)
        elif isinstance(value, float):
            writer.add_float32(key, value)
        elif isinstance(value, list):
            writer.add_array(key, value)
        else:
            writer.add_string(key, str(value))
    for name, (kind, data) in content.items():
        writer.add_tensor(name, data, raw_dtype=GGMLQuantizationType[kind])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
