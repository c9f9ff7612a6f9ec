"""How much a GGUF header may ask of us. The defaults leave room above the largest published models."""

from dataclasses import dataclass

# Fixed by the format or by llama.cpp, so there is nothing to configure.
MIN_FILE_BYTES = 24
MAX_KEY_BYTES = 65_535
MAX_TENSOR_NAME_BYTES = 63  # GGML_MAX_NAME counts the final zero byte
MAX_DIMENSIONS = 4
MIN_ALIGNMENT, DEFAULT_ALIGNMENT, MAX_ALIGNMENT = 8, 32, 65_536
MAX_INT64 = 2**63 - 1

# Arrays up to this many elements are always read: per-layer settings are needed even when big arrays are skipped.
SMALL_ARRAY = 1_024


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Upper bounds of one read. Sizes are in bytes, `seconds` is wall-clock time over all shards together.

    `strings` bounds all strings inside arrays of one file: each costs Python about 60 bytes however short it is. The largest
    vocabulary that is known (262,144 tokens with 514,906 merges) needs a third of the default.
    """

    metadata_bytes: int = 256 * 1024**2
    string_bytes: int = 16 * 1024**2
    array_elements: int = 64 * 1024**2
    strings: int = 2 * 1024**2
    keys: int = 65_536
    tensors: int = 65_536
    shards: int = 1_000
    seconds: float = 30.0
