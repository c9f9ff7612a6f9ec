"""What can be set about one GGUF model. Plain data: importing this loads nothing native."""

from typing import Annotated, Literal

from msgspec import Meta

from backends.child.config import ChildConfig

KvType = Literal["auto", "f32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0"]


class EdgeConfig(ChildConfig, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="engine", tag="gguf"):
    """One model on llama.cpp.

    Sizes are in tokens unless the name says otherwise, and 0 means "choose for me".

    `context` is the number of KV cells in all: each of the `slots` has its share, or with `kv_unified` they all draw from
    one pool (slower, but a single request may use all of it). 0 gives each slot the training context, at most 4096, less
    where that would take more than a quarter of the available memory. `cache_type_k` and `cache_type_v` are the precisions of
    the KV cache; "auto" is f16, and for the keys bf16 where llama.cpp then computes a token the same way whatever runs beside
    it (see `edge.precision`). `threads` 0 is what cores, affinity and cgroup allow. `prefill_chunk` caps the prompt tokens of a
    step, which bounds the pause that a new prompt makes in running streams; `batch` and `ubatch` are llama.cpp's logical and
    physical batch. The prefix cache keeps finished sequences in up to `cache_bytes` of host memory; there 0 means off.
    """

    context: Annotated[int, Meta(ge=0)] = 0
    threads: Annotated[int, Meta(ge=0)] = 0
    batch: Annotated[int, Meta(ge=32)] = 2048
    ubatch: Annotated[int, Meta(ge=32)] = 512
    prefill_chunk: Annotated[int, Meta(ge=16)] = 512
    cache_type_k: KvType = "auto"
    cache_type_v: KvType = "auto"
    kv_unified: bool = False
    flash_attention: Literal["auto", "on", "off"] = "auto"
    gpu_layers: Annotated[int, Meta(ge=-1)] = -1
    mmap: bool = True
    cache_bytes: Annotated[int, Meta(ge=0)] = 512 * 2**20
