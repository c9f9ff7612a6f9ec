"""The precision of keys and values in the KV cache, where the configuration leaves it open."""

import platform

from edge.config import EdgeConfig

_X86 = frozenset({"x86_64", "amd64", "AMD64"})


def cache_types(config: EdgeConfig, *, on_gpu: bool, machine: str = platform.machine()) -> tuple[str, str]:
    """Return the types of keys and values, neither of them "auto".

    On x86 CPUs the keys are bf16 beside f16 values: for a mixed pair llama.cpp has one attention kernel for all shapes, so that
    greedy output does not depend on what else runs or was cached, and it is as fast as the kernels for f16 alone (NOTES.md).
    Elsewhere both are f16: bf16 has no vector code on ARM CPUs, and GPU kernels want both types to be the same.
    """
    keys = "bf16" if machine in _X86 and not on_gpu and config.cache_type_v in ("auto", "f16") else "f16"
    return (
        keys if config.cache_type_k == "auto" else config.cache_type_k,
        "f16" if config.cache_type_v == "auto" else config.cache_type_v,
    )
