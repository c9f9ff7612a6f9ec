"""What "auto" means for the types of the KV cache."""

import pytest

from edge.config import EdgeConfig
from edge.precision import cache_types


@pytest.mark.parametrize(
    ("config", "machine", "on_gpu", "expected"),
    [
        (EdgeConfig(path="m"), "x86_64", False, ("bf16", "f16")),
        (EdgeConfig(path="m"), "x86_64", True, ("f16", "f16")),
        (EdgeConfig(path="m"), "aarch64", False, ("f16", "f16")),
        (EdgeConfig(path="m", cache_type_k="q8_0"), "x86_64", False, ("q8_0", "f16")),
        (EdgeConfig(path="m", cache_type_v="q8_0"), "x86_64", False, ("f16", "q8_0")),
        (EdgeConfig(path="m", cache_type_k="f32", cache_type_v="f32"), "x86_64", True, ("f32", "f32")),
    ],
)
def test_auto_is_resolved_by_the_processor_and_named_types_are_kept(
    config: EdgeConfig, machine: str, on_gpu: bool, expected: tuple[str, str]
) -> None:
    assert cache_types(config, on_gpu=on_gpu, machine=machine) == expected
