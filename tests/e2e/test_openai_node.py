"""OpenAI's SDK for Node against the real model: the checks in `tests/node`, run by node."""

import os
import shutil
import subprocess

import pytest

from tests.e2e.gateway_process import MODEL, ROOT, Server

NODE = ROOT / "tests" / "node"


def node() -> str:
    """The program.

    Raises:
        pytest.skip.Exception: it or the SDK is not installed.
    """
    program = shutil.which("node")
    if program is None or not (NODE / "node_modules" / "openai").is_dir():
        pytest.skip("node or its packages are not installed: make test")
    return program


@pytest.mark.parametrize("name", sorted(path.name for path in NODE.glob("*.test.mjs")))
def test_node(server: Server, name: str) -> None:
    done = subprocess.run(
        [node(), "--test", "--test-reporter=tap", name],
        cwd=NODE,
        env=os.environ | {"BATON_URL": server.url, "BATON_MODEL": MODEL},
        capture_output=True,
        text=True,
        timeout=150,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "# pass 0" not in done.stdout, "no check was found"
