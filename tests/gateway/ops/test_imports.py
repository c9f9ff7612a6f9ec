"""What the gateway process loads."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
FORBIDDEN = ("torch", "triton", "llama_cpp", "numpy", "llguidance", "jinja2", "pydantic", "transformers")


def modules_after(statement: str) -> set[str]:
    script = f"import sys; {statement}; print(*sys.modules)"
    result = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    return {name.split(".")[0] for name in result.stdout.split()}


def test_server_loads_no_heavy_library():
    assert not modules_after("import gateway.server").intersection(FORBIDDEN)


def test_command_line_loads_no_web_framework():
    assert not modules_after("import gateway.cli").intersection({*FORBIDDEN, "litestar", "uvicorn", "httpx", "msgspec"})
