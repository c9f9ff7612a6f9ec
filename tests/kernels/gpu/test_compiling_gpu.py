"""Every kernel, with every entry of the tuning tables, compiles for every GPU that it is meant for, and takes what it may."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kernels.gpu.compiling import TARGETS, operators

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.timeout(1200)
def test_everything_compiles_without_spills_and_with_tensor_cores() -> None:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "baton" / "triton"
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, "-m", "kernels.gpu.compiling"]
    done = subprocess.run(
        command, cwd=ROOT, env=environment | {"TRITON_CACHE_DIR": str(cache)}, capture_output=True, text=True, timeout=1100
    )
    sys.stdout.write(done.stdout)
    faults = [line for line in done.stdout.splitlines() if "FAULT" in line]
    assert not faults
    assert done.returncode == 0, done.stderr
    for target in TARGETS:
        for operator in operators():
            if (operator, target) not in {("fp8", 80), ("fp8", 87)}:
                assert f"sm_{target} {operator}," in done.stdout
    wgmma = [line for line in done.stdout.splitlines() if line.startswith("sm_90 prefill_attention")]
    assert any("wgmma" in line for line in wgmma)
