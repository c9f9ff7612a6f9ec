"""Models of our own engines in the composition of the gateway: what must be installed, and how long their queues are."""

import pytest

from backends.child.parent.hosted import HostedBackend
from backends.engine.backend import EngineBackend
from backends.engine.config import EngineConfig
from edge.config import EdgeConfig
from edge.engine import EdgeBackend
from gateway import backends
from gateway.admission.config import AdmissionConfig
from gateway.backends import build_backends
from gateway.config import ModelConfig, ServerConfig, Settings
from gateway.config_sources.reader import ConfigError
from gateway.generation import _queue_config

BOTH = [(EdgeConfig(path="x", slots=3, queue=10), EdgeBackend), (EngineConfig(path="x", slots=3, queue=10), EngineBackend)]


@pytest.mark.parametrize(("model", "kind"), BOTH)
def test_model_is_hosted_by_its_engine_and_started_later(model: ModelConfig, kind: type[HostedBackend]) -> None:
    built, starters = build_backends({"m": model})
    assert type(built["m"]) is kind
    assert list(starters) == ["m"]


@pytest.mark.parametrize(
    ("model", "missing", "says"),
    [
        (EngineConfig(path="x"), {"torch", "numba"}, "torch, numba, not installed here. Run: pip install 'baton-llm[engine]'"),
        (EdgeConfig(path="x"), {"llama_cpp"}, "llama_cpp, not installed here. Run: pip install 'baton-llm[edge]'"),
    ],
)
def test_what_is_not_installed_is_named_with_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch, model: ModelConfig, missing: set[str], says: str
) -> None:
    monkeypatch.setattr(backends, "find_spec", lambda name: None if name in missing else object())
    with pytest.raises(ConfigError) as caught:
        build_backends({"m": model})
    [error] = caught.value.errors
    assert error.startswith("models.m: ")
    assert error.endswith(says)


@pytest.mark.parametrize(("model", "kind"), BOTH)
def test_engine_of_our_own_is_kept_just_busy(model: ModelConfig, kind: type[HostedBackend]) -> None:
    settings = Settings(server=ServerConfig(), models={"m": model}, queue=AdmissionConfig(max_wait_s=7))
    assert _queue_config(settings, "m") == AdmissionConfig(max_running=6, max_waiting=7, max_wait_s=7)
