"""Tests that cannot run are named, and in CI they fail the run."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TESTS = "import pytest\n\n\ndef test_runs():\n    pass\n\n\ndef test_browser():\n    pytest.skip('there is no browser')\n"


def _pytest(folder: Path, tests: str, ci: str) -> subprocess.CompletedProcess[str]:
    (folder / "test_some.py").write_text(tests)
    env = {**os.environ, "PYTHONPATH": str(ROOT / ".ci"), "CI": ci}
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "not_run",
        "-p",
        "no:cacheprovider",
        "--rootdir",
        str(folder),
        "test_some.py",
    ]
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize(("ci", "status"), [("true", 1), ("", 0)])
def test_a_skip_is_named_and_fails_only_in_ci(tmp_path: Path, ci: str, status: int) -> None:
    done = _pytest(tmp_path, TESTS, ci)
    assert done.returncode == status
    assert "test_some.py::test_browser: there is no browser" in done.stdout
    assert "1 passed, 1 skipped" in done.stdout.splitlines()[-1]


def test_a_file_that_is_skipped_whole_counts_too(tmp_path: Path) -> None:
    done = _pytest(tmp_path, "import pytest\npytest.importorskip('a_module_nobody_has')\n" + TESTS, "true")
    assert done.returncode != 0
    assert "a_module_nobody_has" in done.stdout


def test_a_full_run_is_green_in_ci(tmp_path: Path) -> None:
    done = _pytest(tmp_path, "def test_runs():\n    pass\n", "true")
    assert done.returncode == 0
    assert "could not run" not in done.stdout
