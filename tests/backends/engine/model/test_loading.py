"""What loading keeps, says and needs on the way."""

import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch

from backends.child.errors import LoadError
from backends.engine.build import activation_dtype, build_engine
from backends.engine.config import EngineConfig
from backends.engine.names import expected
from backends.engine.precision.choose import choose
from backends.engine.precision.precisions import Precisions
from backends.engine.weights.open_source import open_source
from kernels.cpu import grouped
from kernels.cpu.device import CpuDevice
from kernels.ops import open_device
from tests.backends.engine.model.harness import load
from tests.backends.engine.weights import folders
from tests.models import SMOLLM2

ROOT = Path(__file__).resolve().parents[4]

# Not getrusage: what that says begins with what the parent had.
_PEAK = """
import re, sys
from pathlib import Path
import torch
from backends.engine.build import build_engine
from backends.engine.memory import loading
from backends.engine.model.weights import load_weights
from backends.engine.precision.precisions import Precisions
from backends.engine.weights.open_source import open_source
from kernels.ops import open_device

def peak():
    return int(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1]) * 1024

torch.set_num_threads(1)
source = open_source(Path(sys.argv[1]))
load_weights(open_source(Path(sys.argv[2])), Precisions(**eval(sys.argv[3])), open_device(threads=1))  # what all need
before = peak()
with loading():  # memory that is freed is given back at once
    weights = load_weights(source, Precisions(**eval(sys.argv[3])), open_device(threads=1))
print(peak() - before, sum(weights.memory().values()))
"""


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random Llama of 200 MB in bfloat16: 12 layers of 15 MB, and words of 20 MB."""
    folder = tmp_path_factory.mktemp("large")
    wide = {"hidden_size": 768, "intermediate_size": 2304, "num_attention_heads": 12, "num_key_value_heads": 4, "head_dim": 64}
    folders.save_random("llama", folder, torch.bfloat16, **wide, num_hidden_layers=12, vocab_size=13_000)
    assert 190e6 < sum(file.stat().st_size for file in folder.iterdir()) < 230e6
    return folder


@pytest.mark.parametrize(
    "precisions",
    [
        Precisions(prefill=None, decode="bf16", head="bf16"),
        Precisions(prefill="bf16", decode="int4-g32", head="file"),
        Precisions(prefill="int8", decode="int4-g128", head="int8"),
        Precisions(prefill=None, decode="fp32", head="fp32"),
    ],
    ids=lambda precisions: f"{precisions.prefill}+{precisions.decode}",
)
def test_beside_what_is_kept_one_layer_is_in_memory(large: Path, tmp_path: Path, precisions: Precisions) -> None:
    folders.save_random("llama", tmp_path, torch.bfloat16)
    command = [sys.executable, "-c", _PEAK, str(large), str(tmp_path), repr(asdict(precisions))]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=True)
    peak, kept = map(int, done.stdout.split())
    layer, words = 7_700_000 * 4, 13_000 * 768 * 4  # in float32, as they are dequantised
    assert peak < kept + max(layer, words) + 5e6


@pytest.mark.parametrize(
    ("prefill", "decode", "head", "sizes"),
    [
        ("fp32", "fp32", "fp32", (0, 4, 4)),
        ("bf16", "bf16", "bf16", (0, 2, 2)),
        ("bf16", "int8", "int8", (2, 1 + grouped.AVAILABLE * 2 / 32, 1.125)),
        ("int8", "int4-g32", "bf16", (1, 0.625, 2)),
        ("decode", "int4-g128", "bf16", (0, 0.5 + 4 / 128, 2)),
    ],
)
def test_the_report_of_memory_is_right(tmp_path: Path, prefill: str, decode: str, head: str, sizes: tuple[float, ...]) -> None:
    folders.save_random("llama", tmp_path, hidden_size=256, intermediate_size=512, tie_word_embeddings=True, head_dim=64)
    loaded = load(tmp_path, prefill=prefill, decode=decode, head=head)
    weights = expected(loaded.shape)
    matrices = sum(size[0] * size[1] for name, size in weights.items() if len(size) == 2 and name != "embed")
    words = weights["embed"][0] * weights["embed"][1]
    found = loaded.weights.memory()
    # Scales of 8 bits, one per row, are less than a hundredth of their matrix.
    assert found["prefill"] == pytest.approx(matrices * sizes[0], rel=0.02)
    assert found["decode"] == pytest.approx(matrices * sizes[1], rel=0.02)
    assert found["words"] == pytest.approx(words * sizes[2], rel=0.001)
    assert loaded.weights.head is loaded.weights.embed


def test_a_head_of_its_own_is_counted_beside_the_embedding(tmp_path: Path) -> None:
    folders.save_random("llama", tmp_path, tie_word_embeddings=False)
    loaded = load(tmp_path, head="bf16")
    assert loaded.weights.head is not loaded.weights.embed
    assert loaded.weights.memory()["words"] == 2 * folders.VOCAB * folders.HIDDEN * 2


def test_the_embedded_model_is_kept_as_its_file_has_it() -> None:
    loaded = load(SMOLLM2, prefill="bf16")
    assert loaded.weights.kinds() == {"prefill": "bf16", "decode": "int4-g32", "head": "int8-g32"}
    memory = loaded.weights.memory()
    layers = 134_515_008 - 49_152 * 576 - 61 * 576
    assert memory["prefill"] == 2 * layers
    assert memory["decode"] == layers * 5 // 8
    assert memory["words"] == 49_152 * 576 * 9 // 8


def test_the_cache_takes_what_it_says(tmp_path: Path) -> None:
    folders.save_random("gemma3", tmp_path)
    loaded = load(tmp_path, prefill="bf16", decode="bf16")
    per_token = loaded.shape.kv_heads * loaded.shape.head_dim * 2 * len(loaded.shape.layers)
    plain, rounded = (loaded.engine(kv=kv, kv_tokens=1000, block=16).engine for kv in ("bf16", "int8"))
    assert plain.cache_tokens == rounded.cache_tokens == 992
    assert plain.cache_bytes == 992 * per_token * 2
    assert rounded.cache_bytes == 992 * (per_token + 4 * per_token // loaded.shape.head_dim)


def choice(monkeypatch: pytest.MonkeyPatch, path: Path, *, has_bf16: bool = True, **settings: Any) -> Precisions:
    monkeypatch.setattr(CpuDevice, "has_fast_bf16", has_bf16)
    source = open_source(path)
    chosen = choose(EngineConfig(path=str(path), **settings), source, open_device(threads=1))
    source.close()
    return chosen


@pytest.mark.parametrize(
    ("settings", "expected_choice"),
    [
        ({}, Precisions(prefill="bf16", decode="file", head="file")),
        ({"has_bf16": False}, Precisions(prefill="fp32", decode="file", head="file")),
        ({"prefill": "decode"}, Precisions(prefill=None, decode="file", head="file")),
        ({"decode": "bf16"}, Precisions(prefill=None, decode="bf16", head="file")),
        ({"decode": "fp32"}, Precisions(prefill="bf16", decode="fp32", head="fp32")),
        ({"prefill": "int8", "decode": "int4-g64", "head": "bf16"}, Precisions(prefill="int8", decode="int4-g64", head="bf16")),
    ],
)
def test_what_is_left_open_is_chosen_by_file_and_machine(
    monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any], expected_choice: Precisions
) -> None:
    assert choice(monkeypatch, SMOLLM2, **settings) == expected_choice


def test_a_folder_in_bfloat16_needs_one_set_of_weights(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folders.save_random("llama", tmp_path)
    assert choice(monkeypatch, tmp_path) == Precisions(prefill=None, decode="bf16", head="file")


@pytest.mark.parametrize(
    ("prefill", "decode", "dtype"),
    [
        ("fp32", "fp32", torch.float32),
        (None, "fp32", torch.float32),
        ("bf16", "fp32", torch.bfloat16),
        (None, "file", torch.bfloat16),
    ],
)
def test_activations_are_float32_only_where_all_weights_are(prefill: str | None, decode: str, dtype: torch.dtype) -> None:
    assert activation_dtype(Precisions(prefill=prefill, decode=decode, head="file"), open_device(threads=1)) == dtype


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"kv": "fp32"}, "kv is fp32, but with these precisions of the weights it must be bf16 or int8"),
        ({"context": 300}, "context is 300 tokens, the model was trained for 256"),
    ],
)
def test_settings_that_do_not_fit_are_refused(tmp_path: Path, settings: dict[str, Any], message: str) -> None:
    folders.save_random("llama", tmp_path)
    loaded = load(tmp_path, prefill="bf16", decode="bf16")
    config = EngineConfig(path=str(tmp_path), prefill="bf16", decode="bf16", **settings)
    with pytest.raises(LoadError, match=message):
        build_engine(loaded.shape, loaded.weights, loaded.precisions, config, open_device(threads=1))
