"""The torch engine as the gateway sees it: a model in a supervised child process.

Loads no torch: of the model only headers and its `config.json` are read here.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from backends.child.parent.hosted import HostedBackend
from backends.engine.config import EngineConfig
from backends.engine.model_card import describe
from backends.types import ModelCard

CHILD = (sys.executable, "-m", "backends.engine.worker")


class EngineBackend(HostedBackend):
    """Serves one model under one name; `start` it before use.

    Args:
        command: program and arguments that start a child, without the options of `backends.child.worker`, which are added.
    """

    def __init__(self, name: str, config: EngineConfig, *, command: Sequence[str] = CHILD) -> None:
        super().__init__(name, config, command=command, describe=_describe)


def _describe(name: str, config: EngineConfig) -> ModelCard:
    return describe(name, Path(config.path))
