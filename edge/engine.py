"""The GGUF engine as the gateway sees it: llama.cpp in a supervised child process.

Loads nothing native and nothing large: of the model only the header of its file is read here.
"""

import sys
from collections.abc import Sequence

from backends.child.errors import LoadError
from backends.child.parent.hosted import HostedBackend
from backends.gguf.errors import GgufError
from backends.gguf.read import read_gguf
from backends.types import ModelCard
from edge.config import EdgeConfig
from edge.model_card import card_of_file

CHILD = (sys.executable, "-m", "edge.worker")


class EdgeBackend(HostedBackend):
    """Serves one GGUF model under one name; `start` it before use.

    Args:
        command: program and arguments that start a child, without the options of `backends.child.worker`, which are added.
    """

    def __init__(self, name: str, config: EdgeConfig, *, command: Sequence[str] = CHILD) -> None:
        super().__init__(name, config, command=command, describe=_describe)


def _describe(name: str, config: EdgeConfig) -> ModelCard:
    try:
        return card_of_file(name, read_gguf(config.path))
    except GgufError as error:
        raise LoadError(str(error)) from error
