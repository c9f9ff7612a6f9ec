"""Kernels that are broken on purpose: the tests have to notice. Each case works on a copy of the sources with one mistake."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]

DECODE, PREFILL, LINEAR = (f"kernels/gpu/{name}.py" for name in ("decode_attention", "prefill_attention", "weight_layout"))
MISTAKES = {
    "a mask one key too long": (DECODE, "m_key = o_key < end", "m_key = o_key <= end", "lengths_may_differ"),
    "a stride of another dimension": (PREFILL, "o_token * strides.token", "o_token * strides.head", "every_block"),
    "scales of values for keys": (DECODE, "tl.load(p_k_scales + o_scale", "tl.load(p_v_scales + o_scale", "lengths_may_differ"),
    "programs that write to one place": (DECODE, "* splits + i_place", "* splits", "lengths_may_differ"),
    "factors of another chunk": (LINEAR, "p_factors + i_chunk * factor_stride", "p_factors", "exact_up_to_one_rounding"),
}
TESTS = {
    DECODE: "test_decode_attention_gpu.py",
    PREFILL: "test_prefill_attention_gpu.py",
    LINEAR: "test_quantised_linear_gpu.py",
}


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    copy = tmp_path_factory.mktemp("broken")
    for folder in ("kernels", "tests/kernels"):
        shutil.copytree(ROOT / folder, copy / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for file in ("pyproject.toml", "tests/__init__.py"):
        shutil.copy(ROOT / file, copy / file)
    return copy


def outcome(sources: Path, file: str, which: str) -> int:
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-x",
        "-p",
        "no:cacheprovider",
        f"tests/kernels/gpu/{TESTS[file]}",
        "-k",
        which,
    ]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(command, cwd=sources, env=environment, capture_output=True, timeout=150).returncode


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_makes_a_test_fail(sources: Path, mistake: str) -> None:
    file, right, wrong, which = MISTAKES[mistake]
    text = (ROOT / file).read_text()
    assert text.count(right) == 1
    (sources / file).write_text(text.replace(right, wrong))
    try:
        assert outcome(sources, file, which) == pytest.ExitCode.TESTS_FAILED
    finally:
        (sources / file).write_text(text)


def test_without_a_mistake_the_copies_pass(sources: Path) -> None:
    assert outcome(sources, LINEAR, "exact_up_to_one_rounding") == pytest.ExitCode.OK
