"""Writes GGUF files byte by byte, right ones and wrong ones: nothing here checks anything.

`small_model()` is a valid file; a test changes what it wants to break and calls `to_bytes`.
"""

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

CODES = {
    "u8": 0,
    "i8": 1,
    "u16": 2,
    "i16": 3,
    "u32": 4,
    "i32": 5,
    "f32": 6,
    "bool": 7,
    "str": 8,
    "u64": 10,
    "i64": 11,
    "f64": 12,
}
_FORMATS = {
    "u8": "B",
    "i8": "b",
    "u16": "H",
    "i16": "h",
    "u32": "I",
    "i32": "i",
    "f32": "f",
    "bool": "B",
    "u64": "Q",
    "i64": "q",
    "f64": "d",
}
ARRAY = 9
F32, Q4_1, Q8_0 = 0, 3, 8


def string(content: str | bytes, length: int | None = None) -> bytes:
    """A string with its length in front, or a lie about it."""
    raw = content.encode() if isinstance(content, str) else content
    return struct.pack("<Q", len(raw) if length is None else length) + raw


def scalar(kind: str, value: float) -> bytes:
    """A typed number."""
    return struct.pack("<I" + _FORMATS[kind], CODES[kind], value)


def text(content: str | bytes, length: int | None = None) -> bytes:
    """A typed string."""
    return struct.pack("<I", CODES["str"]) + string(content, length)


def numbers(kind: str, values: Sequence[float], count: int | None = None) -> bytes:
    """A typed array of numbers, or a lie about how many."""
    head = struct.pack("<IIQ", ARRAY, CODES[kind], len(values) if count is None else count)
    return head + struct.pack(f"<{len(values)}{_FORMATS[kind]}", *values)


def texts(values: Iterable[str | bytes], count: int | None = None) -> bytes:
    """A typed array of strings, or a lie about how many."""
    values = list(values)
    return struct.pack("<IIQ", ARRAY, CODES["str"], len(values) if count is None else count) + b"".join(map(string, values))


@dataclass
class Tensor:
    """A line of the tensor table with `nbytes` of data; `offset` None puts it behind the one before."""

    name: str | bytes
    shape: tuple[int, ...]
    type: int
    nbytes: int
    offset: int | None = None
    num_dimensions: int | None = None


@dataclass
class Gguf:
    """A file to be written. `keys` maps names to typed values; `extra_keys` is appended as it is."""

    keys: dict[str | bytes, bytes] = field(default_factory=dict)
    tensors: list[Tensor] = field(default_factory=list)
    magic: bytes = b"GGUF"
    version: int = 3
    num_keys: int | None = None
    num_tensors: int | None = None
    alignment: int = 32
    extra_keys: list[bytes] = field(default_factory=list)
    trailing: bytes = b""

    def to_bytes(self) -> bytes:
        """The whole file."""
        num_keys = len(self.keys) + len(self.extra_keys) if self.num_keys is None else self.num_keys
        num_tensors = len(self.tensors) if self.num_tensors is None else self.num_tensors
        out = self.magic + struct.pack("<IQQ", self.version, num_tensors, num_keys)
        out += b"".join(string(key) + value for key, value in self.keys.items()) + b"".join(self.extra_keys)
        data = b""
        for tensor in self.tensors:
            offset = len(data) if tensor.offset is None else tensor.offset
            dimensions = len(tensor.shape) if tensor.num_dimensions is None else tensor.num_dimensions
            out += string(tensor.name) + struct.pack("<I", dimensions) + struct.pack(f"<{len(tensor.shape)}Q", *tensor.shape)
            out += struct.pack("<IQ", tensor.type, offset)
            data += b"\x11" * tensor.nbytes
            data += b"\0" * (-len(data) % self.alignment)
        if self.tensors:
            out += b"\0" * (-len(out) % self.alignment)
        return out + data + self.trailing


TOKENS = ["<unk>", "<s>", "</s>", "<0x0A>", "a", "b", "ab", "é"]
TOKEN_TYPES = [2, 3, 3, 6, 1, 1, 1, 1]


def small_model() -> Gguf:
    """A valid Llama of two layers with a vocabulary of eight tokens."""
    return Gguf(
        keys={
            "general.architecture": text("llama"),
            "general.type": text("model"),
            "general.name": text("Tiny"),
            "general.size_label": text("2K"),
            "general.file_type": scalar("u32", 3),
            "general.tags": texts(["test"]),
            "llama.block_count": scalar("u32", 2),
            "llama.context_length": scalar("u32", 128),
            "llama.embedding_length": scalar("u32", 32),
            "llama.feed_forward_length": scalar("u32", 64),
            "llama.attention.head_count": scalar("u32", 4),
            "llama.attention.head_count_kv": scalar("u32", 2),
            "llama.attention.layer_norm_rms_epsilon": scalar("f32", 1e-5),
            "tokenizer.ggml.model": text("llama"),
            "tokenizer.ggml.tokens": texts(TOKENS),
            "tokenizer.ggml.scores": numbers("f32", [float(-i) for i in range(len(TOKENS))]),
            "tokenizer.ggml.token_type": numbers("i32", TOKEN_TYPES),
            "tokenizer.ggml.bos_token_id": scalar("u32", 1),
            "tokenizer.ggml.eos_token_id": scalar("u32", 2),
            "tokenizer.ggml.add_bos_token": scalar("bool", 1),
            "tokenizer.chat_template": text("{{ messages[0].content }}"),
        },
        tensors=[
            Tensor("token_embd.weight", (32, 8), F32, 32 * 8 * 4),
            Tensor("blk.0.attn_norm.weight", (32,), F32, 32 * 4),
            Tensor("blk.0.attn_q.weight", (32, 32), Q4_1, 32 * 20),
            Tensor("blk.1.attn_q.weight", (32, 64), Q8_0, 64 * 34),
        ],
    )


def small_projector() -> Gguf:
    """A valid image projector."""
    return Gguf(
        keys={
            "general.architecture": text("clip"),
            "general.type": text("mmproj"),
            "clip.projector_type": text("gemma3"),
            "clip.vision.block_count": scalar("u32", 2),
            "clip.vision.embedding_length": scalar("u32", 32),
            "clip.vision.attention.head_count": scalar("u32", 4),
            "clip.vision.image_size": scalar("u32", 224),
            "clip.vision.patch_size": scalar("u32", 14),
        },
        tensors=[Tensor("mm.weight", (32, 32), F32, 4096)],
    )


def small_adapter() -> Gguf:
    """A valid LoRA adapter."""
    return Gguf(
        keys={
            "general.architecture": text("llama"),
            "general.type": text("adapter"),
            "adapter.type": text("lora"),
            "adapter.lora.alpha": scalar("f32", 16.0),
        },
        tensors=[
            Tensor("blk.0.attn_q.weight.lora_a", (32, 4), F32, 512),
            Tensor("blk.0.attn_q.weight.lora_b", (4, 32), F32, 512),
        ],
    )
