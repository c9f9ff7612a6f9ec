"""From a path to the weights there, whatever their format."""

from pathlib import Path

from backends.engine.weights.folder_source import FolderSource
from backends.engine.weights.gguf_source import GgufSource
from backends.engine.weights.source import WeightSource


def open_source(path: Path) -> WeightSource:
    """Open a GGUF file or a Hugging Face folder.

    Raises:
        ModelFileError: there is nothing at the path, or it is no model that the engine can load.
    """
    return FolderSource(path) if path.is_dir() else GgufSource(path)
