"""Loads a model in one choice of precisions after the other."""

import torch

from backends.engine.build import Engine, build_engine
from backends.engine.config import EngineConfig
from backends.engine.evaluation.choice import Choice
from backends.engine.model.weights import ModelWeights, load_weights
from backends.engine.precision.choose import choose
from backends.engine.precision.precisions import Precisions
from backends.engine.weights.source import WeightSource
from kernels.ops import open_device

_CACHES = {torch.bfloat16: "bf16", torch.float32: "fp32", torch.int8: "int8"}


class Loader:
    """Keeps the weights it loaded last, for choices that differ in nothing but the cache.

    Args:
        window: tokens that the cache is to hold.
    """

    def __init__(self, source: WeightSource, path: str, window: int, threads: int) -> None:
        self._source, self._path, self._window, self._device = source, path, window, open_device("cpu", threads=threads)
        self._kept: tuple[Precisions, ModelWeights] | None = None

    def precisions(self, choice: Choice) -> Precisions:
        """What a choice means here."""
        return choose(self._config(choice), self._source, self._device)

    def load(self, choice: Choice) -> Engine:
        """Build an engine for one window. Whoever asks has let go of the engine before, or there are two sets of weights.

        Raises:
            LoadError: the weights are damaged, or do not go with the cache.
        """
        precisions = self.precisions(choice)
        if self._kept is None or self._kept[0] != precisions:
            self._kept = None
            self._kept = precisions, load_weights(self._source, precisions, self._device)
        return build_engine(self._source.shape, self._kept[1], precisions, self._config(choice), self._device)

    def _config(self, choice: Choice) -> EngineConfig:
        return EngineConfig(path=self._path, slots=1, context=self._window, draft_tokens=0, **choice.settings())


def used_precisions(engine: Engine, choice: Choice) -> dict[str, str | None]:
    """Name what a choice came to, so that nothing is `auto`; None for the phase whose tokens the other's weights read."""
    kinds: dict[str, str | None] = {**engine.model.weights.kinds(), "kv": _CACHES[engine.pools[0].cache.dtype]}
    if choice.decode is None:
        return kinds | {"decode": None}
    return kinds if choice.prefill else kinds | {"prefill": None}
