"""Makes the programs under `.ci` importable, as they are for each other."""

from pathlib import Path
from types import SimpleNamespace

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def ci(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> SimpleNamespace:
    """The installer's modules, with their environment, cache and log in a temporary folder."""
    monkeypatch.syspath_prepend(str(ROOT / ".ci"))
    import bootstrap
    import llama_wheel
    import steps
    import system

    monkeypatch.setattr(steps, "VENV", tmp_path / "venv")
    monkeypatch.setattr(steps, "LOG", tmp_path / "install.log")
    monkeypatch.setattr(llama_wheel, "CACHE", tmp_path / "cache")
    (tmp_path / "venv").mkdir()
    return SimpleNamespace(bootstrap=bootstrap, llama_wheel=llama_wheel, steps=steps, system=system)
