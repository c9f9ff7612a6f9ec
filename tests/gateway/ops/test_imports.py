"""What the gateway process loads, also when it hosts engines."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
FORBIDDEN = (
    *("torch", "triton", "numba", "numpy", "safetensors", "sentencepiece", "tokenizers", "transformers"),
    *("llama_cpp", "llguidance", "jinja2", "pydantic"),
)


def modules_after(statement: str) -> set[str]:
    script = f"import sys; {statement}; print(*sys.modules)"
    result = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    return {name.split(".")[0] for name in result.stdout.split()}


def test_server_loads_no_heavy_library():
    assert not modules_after("import gateway.server").intersection(FORBIDDEN)


@pytest.mark.parametrize("module", ["backends.engine.backend", "backends.engine.model_card", "edge.engine"])
def test_parent_of_an_engine_loads_nothing_of_what_runs_in_it(module):
    assert not modules_after(f"import {module}").intersection({*FORBIDDEN, "kernels", "psutil"})


def test_looking_for_the_packages_of_an_engine_loads_none():
    build = "from gateway.backends import build_backends"
    serve = "build_backends({'m': EngineConfig(path='x'), 'n': EdgeConfig(path='x')})"
    configs = "from backends.engine.config import EngineConfig; from edge.config import EdgeConfig"
    assert not modules_after(f"{build}; {configs}; {serve}").intersection({*FORBIDDEN, "kernels"})


def test_command_line_loads_no_web_framework():
    assert not modules_after("import gateway.cli").intersection({*FORBIDDEN, "litestar", "uvicorn", "httpx", "msgspec"})
