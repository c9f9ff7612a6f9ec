"""A model for people and for the list of models, from its headers alone. Importing this loads no torch."""

from pathlib import Path

from backends.engine.weights.take_inventory import take_inventory
from backends.types import ModelCard

_NS_PER_S = 10**9


def describe(name: str, path: str | Path) -> ModelCard:
    """Check a model's files as far as their headers go, and describe the model under a public name.

    `created` is when the first file was last changed.

    Raises:
        ModelFileError: there is no model that the engine can load.
    """
    inventory = take_inventory(Path(path))
    return ModelCard(
        id=name,
        created=inventory.files[0].identity.mtime_ns // _NS_PER_S,
        capabilities=("chat", "completion"),
        context_length=inventory.shape.context,
        vocab_size=inventory.shape.vocab,
        parameters=inventory.parameters,
        size_bytes=inventory.size_bytes,
        architecture=inventory.shape.architecture,
        quantization=inventory.quantization,
    )
