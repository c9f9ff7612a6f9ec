"""Vercel's AI SDK through the whole gateway: the checks in `tests/node/vercel`, run by node."""

import os
import shutil
import subprocess

import pytest

from tests.e2e.gateway_process import ROOT
from tests.integration.conftest import KEY, TEXT, Stack

NODE = ROOT / "tests" / "node"


def test_vercel_ai_sdk(stack: Stack, place: str) -> None:
    program = shutil.which("node")
    if program is None or not (NODE / "node_modules" / "ai").is_dir():
        pytest.skip("node or its packages are not installed: make test")
    variables = {"BATON_URL": stack.server.url, "BATON_KEY": KEY, "BATON_PLACE": place, "BATON_TEXT": TEXT}
    done = subprocess.run(
        [program, "--test", "--test-reporter=tap", "vercel/sdk.test.mjs"],
        cwd=NODE,
        env=os.environ | variables,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "# pass 8" in done.stdout, done.stdout
