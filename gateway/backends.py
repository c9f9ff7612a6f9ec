"""Builds the backends that a configuration names.

The only module that knows concrete backends. The GGUF engine is imported only when a model asks for it, so that the gateway
also works where the extra `edge` is not installed.
"""

from collections.abc import Awaitable, Callable, Mapping

from backends.fake import FakeBackend, FakeModel
from backends.protocol import Backend
from backends.remote.backend import RemoteBackend
from backends.remote.config import RemoteConfig
from gateway.config import ModelConfig
from gateway.config_sources.reader import ConfigError

Starter = Callable[[], Awaitable[None]]


def build_backends(models: Mapping[str, ModelConfig]) -> tuple[dict[str, Backend], dict[str, Starter]]:
    """Build every backend, without starting any. Returns them, and what loads those that must load, by name.

    Raises:
        ConfigError: a model asks for an engine that is not installed, or its key or certificate cannot be read.
    """
    backends: dict[str, Backend] = {}
    starters: dict[str, Starter] = {}
    for name, model in models.items():
        backend, start = _build(name, model)
        backends[name] = backend
        if start is not None:
            starters[name] = start
    return backends, starters


def _build(name: str, model: ModelConfig) -> tuple[Backend, Starter | None]:
    if isinstance(model, FakeModel):
        return FakeBackend(name, model), None
    if isinstance(model, RemoteConfig):
        try:
            remote = RemoteBackend(name, model)
        except ValueError as error:
            raise ConfigError([f"models.{name}: {error}"]) from None
        return remote, remote.start
    try:
        from edge.engine import EdgeBackend
    except ModuleNotFoundError as error:
        missing = f"models.{name}: GGUF models need {error.name}, which is not installed. Run: pip install 'baton-llm[edge]'"
        raise ConfigError([missing]) from error
    edge = EdgeBackend(name, model)
    return edge, edge.start
