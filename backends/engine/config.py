"""What can be set about one model of the torch engine. Plain data: importing this loads no torch."""

from typing import Annotated, Literal

from msgspec import Meta

from backends.child.config import ChildConfig

DeviceName = Literal["auto", "cpu", "cuda", "interpreter"]
PrefillPrecision = Literal["auto", "bf16", "fp32", "fp8", "int8", "decode"]
DecodePrecision = Literal["auto", "bf16", "fp32", "int8", "int4-g32", "int4-g64", "int4-g128"]
HeadPrecision = Literal["auto", "bf16", "fp32", "int8"]
KvPrecision = Literal["auto", "bf16", "fp32", "fp8", "int8"]


_LEAST_BLOCK = 4


class EngineConfig(ChildConfig, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="engine", tag="torch"):
    """One model on the torch engine: a GGUF file or a Hugging Face folder.

    Sizes are in tokens unless the name says otherwise, and 0 means "choose for me".

    `device` is `cpu`, `cuda` (an NVIDIA GPU), or `auto`: the GPU if torch finds one, else the CPU. `interpreter` runs the GPU's
    kernels on the CPU, for tests.

    `context` is the most that one request may use; 0 is what the model was trained for, at most 4096. `kv_tokens` is what the
    KV cache holds for all requests and cached prefixes together; 0 is `context` for each of the `slots`, less where that would
    take more than a quarter of the available memory (nine tenths of a GPU's). `block` tokens of the cache are allocated and
    shared at once; 0 is 8 on a CPU and 16 on a GPU.

    `prefill` and `decode` are the precisions of the weights in each phase, `head` that of the embedding and the last product,
    `kv` that of the cache. `auto` is for prefill bf16 (fp32 where the CPU has no bf16 arithmetic), for decode what the file
    holds (its 4-bit blocks as they are, 8 bits where it has 8 or fewer, else bf16), for the head 8 bits where the file holds
    that, else bf16, and for the cache the type of the activations. `prefill = "decode"` lets one set of weights serve both
    phases, which saves memory and costs speed. `fp8` is for GPUs. `int4-g32`, `-g64` and `-g128` round to 4 bits in groups of
    so many columns.

    A step computes one token for each running sequence and up to `prefill_chunk` prompt tokens beside them (this bounds the
    pause that a new prompt makes in running streams), or up to `step_tokens` when nothing else runs. While at most
    `draft_below` sequences run, up to `draft_tokens` tokens are guessed from the text so far and verified in one step; 0
    guesses nothing.
    `threads` 0 is what cores, affinity and cgroup allow.

    Raises:
        ValueError: `context` is 1, `block` below 4, or `step_tokens` leaves nothing for prompts beside the `slots`.
    """

    device: DeviceName = "auto"
    context: Annotated[int, Meta(ge=0)] = 0
    kv_tokens: Annotated[int, Meta(ge=0)] = 0
    block: Annotated[int, Meta(ge=0, le=256)] = 0
    prefill: PrefillPrecision = "auto"
    decode: DecodePrecision = "auto"
    head: HeadPrecision = "auto"
    kv: KvPrecision = "auto"
    threads: Annotated[int, Meta(ge=0)] = 0
    step_tokens: Annotated[int, Meta(ge=128)] = 512
    prefill_chunk: Annotated[int, Meta(ge=16)] = 128
    draft_tokens: Annotated[int, Meta(ge=0, le=32)] = 7  # with the newest token 8 rows: as many as share weights
    draft_below: Annotated[int, Meta(ge=0, le=64)] = 2

    def __post_init__(self) -> None:
        if self.context == 1:
            raise ValueError("context is 1 token, must be at least 2: one of the prompt and one of the answer")
        if 0 < self.block < _LEAST_BLOCK:
            raise ValueError(f"block is {self.block} tokens, must be at least {_LEAST_BLOCK}")
        if self.step_tokens <= self.slots:
            raise ValueError(f"step_tokens is {self.step_tokens}, must be more than the {self.slots} slots")
