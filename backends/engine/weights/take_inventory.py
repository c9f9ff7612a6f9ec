"""From a path to what the model there holds, whatever its format. Importing this loads no torch."""

from pathlib import Path

from backends.engine.weights.folder_inventory import folder_inventory
from backends.engine.weights.gguf_inventory import gguf_inventory
from backends.engine.weights.inventory import Inventory


def take_inventory(path: Path) -> Inventory:
    """Check the headers of a GGUF file or of a Hugging Face folder, without reading any tensor.

    Raises:
        ModelFileError: there is nothing at the path, or it is no model that the engine can load.
    """
    return folder_inventory(path) if path.is_dir() else gguf_inventory(path)
