"""Fetches llama.cpp's vocabularies with the tokens that they must give, once per user: the measure of the tokenizer tests.

They are in the source archive that the llama-cpp-python wheel is built from, and nowhere else on the package index.
"""

from __future__ import annotations

import shutil
import tarfile
import tempfile
from pathlib import Path

from llama_wheel import VERSION
from steps import CACHE, PYTHON, StepError, locked, logged, say


def vocabularies_path() -> Path:
    """Say where the files (`ggml-vocab-*.gguf`, `.gguf.inp`, `.gguf.out`) are kept, fetched or not."""
    return CACHE / "vectors" / f"llama.cpp-{VERSION}"


def vocabularies() -> Path:
    """Return the folder of the files, fetching it when there is none.

    Raises:
        StepError: the archive could not be downloaded, or lacks them.
    """
    home = vocabularies_path()
    with locked(home.with_name(home.name + ".lock"), "fetching vocabularies"):
        if not home.is_dir():
            _fetch(home)
    return home


def _fetch(home: Path) -> None:
    say("downloading the vocabularies that only tests use")
    for stale in home.parent.glob(f"{home.name}.partial-*"):  # we hold the lock: whoever began these is gone
        shutil.rmtree(stale, ignore_errors=True)
    partial = Path(tempfile.mkdtemp(prefix=f"{home.name}.partial-", dir=home.parent))
    try:
        wanted = ["--no-deps", "--no-binary", "llama-cpp-python", f"llama-cpp-python=={VERSION}"]
        logged([str(PYTHON), "-m", "pip", "download", "--dest", str(partial), *wanted])
        (partial / "files").mkdir()
        for archive in partial.glob("*.tar.gz"):
            _unpack(archive, partial / "files")
        if not any((partial / "files").iterdir()):
            raise StepError(f"the source archive of llama-cpp-python {VERSION} has no vocabularies")
        (partial / "files").rename(home)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _unpack(archive: Path, folder: Path) -> None:
    with tarfile.open(archive) as source:
        for member in source:
            path = Path(member.name)
            content = source.extractfile(member) if path.name.startswith("ggml-vocab-") and member.isfile() else None
            if content is not None:
                with (folder / path.name).open("wb") as file:
                    shutil.copyfileobj(content, file)
