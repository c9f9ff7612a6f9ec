"""What the GGUF engine adds to a hosted one: its child, and a look at the file before any native code sees it."""

import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from edge.config import EdgeConfig
from edge.engine import EdgeBackend
from tests.backends.child.conftest import CHILD, until
from tests.backends.gguf.build import small_model

NEVER_LOADS = (sys.executable, str(CHILD), "--load", "never")


@pytest.fixture
async def backend(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[EdgeBackend]:
    monkeypatch.setenv("PYTHONPATH", os.getcwd())
    path = tmp_path / "tiny.gguf"
    path.write_bytes(small_model().to_bytes())
    backend = EdgeBackend("tiny", EdgeConfig(path=str(path)), command=NEVER_LOADS)
    yield backend
    await backend.close()


async def test_before_it_is_loaded_the_card_comes_from_the_header(backend: EdgeBackend, tmp_path: Path) -> None:
    await backend.start()
    await until(backend, lambda health: bool(health.counters["starts_total"]))
    (card,) = await backend.models()
    assert (card.id, card.architecture, card.context_length, card.quantization) == ("tiny", "llama", 128, "Q4_1")
    assert card.created == int((tmp_path / "tiny.gguf").stat().st_mtime)


async def test_a_damaged_file_is_refused_by_name_and_never_given_to_a_child(backend: EdgeBackend, tmp_path: Path) -> None:
    path = tmp_path / "tiny.gguf"
    path.write_bytes(b"GGML" + path.read_bytes()[4:])
    await backend.start()
    health = await until(backend, lambda health: health.state == "failed")
    assert "tiny.gguf" in health.detail
    assert health.counters["starts_total"] == 0


def test_the_default_child_is_this_interpreter_with_the_worker_of_llama_cpp() -> None:
    backend = EdgeBackend("tiny", EdgeConfig(path="x"))
    assert backend._supervisor._command == (sys.executable, "-m", "edge.worker")
