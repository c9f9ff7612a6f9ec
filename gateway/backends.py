"""Builds the backends that a configuration names.

The only module that knows concrete backends. An engine is imported only when a model asks for it, and what its child needs is
looked for but never loaded, so that the gateway also works where the extras `edge` and `engine` are not installed.
"""

from collections.abc import Awaitable, Callable, Mapping
from importlib.util import find_spec

from backends.child.parent.hosted import HostedBackend
from backends.engine.config import EngineConfig
from backends.fake import FakeBackend, FakeModel
from backends.protocol import Backend
from backends.remote.backend import RemoteBackend
from backends.remote.config import RemoteConfig
from edge.config import EdgeConfig
from gateway.config import ModelConfig
from gateway.config_sources.reader import ConfigError

Starter = Callable[[], Awaitable[None]]

_IN_EVERY_CHILD = ("jinja2", "llguidance", "numpy", "psutil")
_GGUF_NEEDS = ("llama_cpp", *_IN_EVERY_CHILD)
_TORCH_NEEDS = ("torch", "numba", "safetensors", "sentencepiece", "tokenizers", *_IN_EVERY_CHILD)


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
    hosted = _build_torch(name, model) if isinstance(model, EngineConfig) else _build_gguf(name, model)
    return hosted, hosted.start


def _build_gguf(name: str, model: EdgeConfig) -> HostedBackend:
    _demand(name, "GGUF models need", _GGUF_NEEDS, "edge")
    from edge.engine import EdgeBackend

    return EdgeBackend(name, model)


def _build_torch(name: str, model: EngineConfig) -> HostedBackend:
    _demand(name, "the torch engine needs", _TORCH_NEEDS, "engine")
    from backends.engine.backend import EngineBackend

    return EngineBackend(name, model)


def _demand(name: str, who: str, packages: tuple[str, ...], extra: str) -> None:
    """Check that packages are installed. Raises ConfigError."""
    missing = [package for package in packages if find_spec(package) is None]
    if missing:
        text = f"models.{name}: {who} {', '.join(missing)}, not installed here. Run: pip install 'baton-llm[{extra}]'"
        raise ConfigError([text])
