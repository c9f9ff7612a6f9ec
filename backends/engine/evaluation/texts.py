"""The texts to evaluate on: the user's, or two that come with every Python. Importing this loads no torch."""

import argparse
import platform
from collections.abc import Sequence
from pathlib import Path

from backends.child.errors import LoadError
from backends.gguf.errors import shown

_MAX_BYTES = 16 * 1024**2


def builtin_texts() -> dict[str, str]:
    """English prose and program text by their names. They differ between versions of Python, so the names say which it is.

    Raises:
        LoadError: this Python was installed without them.
    """
    version = platform.python_version()
    try:
        from pydoc_data.topics import topics

        source = Path(argparse.__file__).read_text("utf-8")
    except (ImportError, OSError, ValueError) as error:
        raise LoadError("this Python has been installed without its help topics or its sources: give a text") from error
    prose = "\n\n".join(topics[name] for name in sorted(topics))
    return {f"help topics of Python {version}": prose, f"argparse.py of Python {version}": source}


def read_texts(paths: Sequence[str]) -> dict[str, str]:
    """Read text files by their paths; of a longer one than 16 MiB only the beginning.

    Raises:
        LoadError: a file cannot be read or is not UTF-8.
    """
    texts = {}
    for path in paths:
        try:
            with open(path, "rb") as file:
                data = file.read(_MAX_BYTES + 1)
        except OSError as error:
            raise LoadError(f"{shown(path)} cannot be read: {error.strerror}") from error
        cut = len(data) > _MAX_BYTES
        try:
            # Half a character at the cut is dropped, anywhere else it is an error.
            texts[path] = data[:_MAX_BYTES].decode("utf-8", "ignore" if cut else "strict")
        except UnicodeDecodeError as error:
            raise LoadError(f"{shown(path)} is not UTF-8 at byte {error.start:,}") from error
    return texts
