"""Random models, made and loaded once for all tests here."""

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from tests.backends.engine.model.harness import EXACT, Loaded, load
from tests.backends.engine.model.random_models import KINDS, Model, save_random

Pair = tuple[Loaded, Model]


@pytest.fixture(scope="session")
def random_model(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Pair]:
    """A model of one of `KINDS`: loaded by the engine in float32, and the one of transformers that it came from."""
    folder: Path = tmp_path_factory.mktemp("random")

    @cache
    def make(kind: str) -> Pair:
        assert kind in KINDS
        model = save_random(kind, folder / kind)
        return load(folder / kind, **EXACT), model

    return make
