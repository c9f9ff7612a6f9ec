"""What can be set, and how it becomes the frozen `Settings` of one run.

Sources, later ones winning: defaults, one TOML file, the environment (`gateway.config_sources.environment`), the command line.
Everything is checked once, here; `ConfigError` lists all mistakes. Loading reads files and checks that they exist, but opens no
model, no socket and no log.
"""

import ipaddress
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta, Struct

from backends.child.config import ChildConfig
from backends.engine.config import EngineConfig
from backends.fake import FakeModel
from backends.remote.config import RemoteConfig
from edge.config import EdgeConfig
from gateway.admission.config import AdmissionConfig
from gateway.batches.config import BatchesConfig
from gateway.config_sources.api_keys import digests_from_file, digests_from_variable
from gateway.config_sources.embedded import EMBEDDED_MODEL, MISSING, find_embedded_model
from gateway.config_sources.environment import apply_environment
from gateway.config_sources.reader import ConfigError, read_struct, shown, unknown_key
from gateway.context.config import ConversationConfig, ResponseCacheConfig
from gateway.keys.config import KeysConfig
from gateway.limits.config import LimitsConfig
from gateway.limits.prices import Price
from gateway.routing.check import check_routes
from gateway.routing.config import BreakerConfig, HealthConfig, RetryConfig, RouteConfig
from gateway.store.config import MEMORY, StoreConfig
from gateway.telemetry.config import TelemetryConfig

S = TypeVar("S", bound=Struct)

ModelConfig = EdgeConfig | EngineConfig | FakeModel | RemoteConfig
ENGINES: Mapping[str, type[ModelConfig]] = {
    "gguf": EdgeConfig,
    "torch": EngineConfig,
    "remote": RemoteConfig,
    "fake": FakeModel,
}

_MAX_CONFIG_BYTES = 1 << 20
_MAX_MODEL_NAME_CHARS = 128


class ServerConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The section `[server]`. Port 0 takes a free port; `ping_interval_s` 0 sends no keep-alive comments in silent streams."""

    host: str = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65535)] = 8000
    cors_origins: tuple[str, ...] = ("localhost",)
    max_body_bytes: Annotated[int, Meta(ge=1024, le=1 << 31)] = 64 << 20
    body_timeout_s: Annotated[float, Meta(gt=0, le=3600)] = 60.0
    keep_alive_s: Annotated[int, Meta(ge=1, le=3600)] = 75
    drain_timeout_s: Annotated[float, Meta(ge=0, le=3600)] = 30.0
    ping_interval_s: Annotated[float, Meta(ge=0, le=600)] = 15.0
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_format: Literal["json", "text"] = "json"
    api_key_file: str = ""
    allow_unauthenticated: bool = False
    workers: Annotated[int, Meta(ge=1, le=64)] = 1


class Settings(Struct, frozen=True, kw_only=True):
    """One resolved configuration. Paths are absolute; of API keys only SHA-256 digests are here.

    Every field but the digests is a section of the file: a Struct is one table, a dict holds one table per name.
    """

    server: ServerConfig
    models: dict[str, ModelConfig]
    routes: dict[str, RouteConfig] = {}
    queue: AdmissionConfig = AdmissionConfig()
    queues: dict[str, AdmissionConfig] = {}
    breaker: BreakerConfig = BreakerConfig()
    retries: RetryConfig = RetryConfig()
    health: HealthConfig = HealthConfig()
    keys: KeysConfig = KeysConfig()
    limits: LimitsConfig = LimitsConfig()
    prices: dict[str, Price] = {}
    store: StoreConfig = StoreConfig()
    conversations: ConversationConfig = ConversationConfig()
    response_cache: ResponseCacheConfig = ResponseCacheConfig()
    batches: BatchesConfig = BatchesConfig()
    telemetry: TelemetryConfig = TelemetryConfig()
    api_key_digests: frozenset[bytes] = frozenset()
    admin_key_digests: frozenset[bytes] = frozenset()


SECTIONS: Mapping[str, type[Struct]] = {
    "server": ServerConfig,
    "queue": AdmissionConfig,
    "breaker": BreakerConfig,
    "retries": RetryConfig,
    "health": HealthConfig,
    "keys": KeysConfig,
    "limits": LimitsConfig,
    "store": StoreConfig,
    "conversations": ConversationConfig,
    "response_cache": ResponseCacheConfig,
    "batches": BatchesConfig,
    "telemetry": TelemetryConfig,
}
"""Sections that are one table."""

NAMED: Mapping[str, type[Struct]] = {"routes": RouteConfig, "queues": AdmissionConfig, "prices": Price}
"""Sections that hold one table per name; `models` is another, whose Struct depends on the engine."""


def load_settings(
    path: Path | None, environ: Mapping[str, str], overrides: Mapping[str, Mapping[str, Any]] | None = None
) -> Settings:
    """Read, override, check and resolve a configuration.

    Args:
        path: the TOML file; None means defaults and the embedded model.
        environ: usually `os.environ`.
        overrides: tables from the command line, in the shape of the file; they win over everything.

    Raises:
        ConfigError: with every mistake that was found.
    """
    errors: list[str] = []
    raw = _read_file(path) if path is not None else {}
    apply_environment(raw, environ, SECTIONS, ENGINES, errors)
    for section, table in (overrides or {}).items():
        target = raw.setdefault(section, {})
        if isinstance(target, dict):
            target.update(table)
    known = (*SECTIONS, *NAMED, "models")
    errors += [unknown_key("", key, known) for key in raw if key not in known]
    base = path.resolve().parent if path is not None else Path.cwd()
    sections = {name: read_struct(cls, raw.get(name, {}), name, errors) for name, cls in SECTIONS.items()}
    named = {name: _read_named(cls, raw.get(name, {}), name, errors) for name, cls in NAMED.items()}
    models = _read_models(raw.get("models", {}), base, errors)
    if errors:
        raise ConfigError(errors)
    return _settled(sections, named, models, base, environ)


def _settled(
    sections: Mapping[str, Any],
    named: Mapping[str, Any],
    models: dict[str, ModelConfig],
    base: Path,
    environ: Mapping[str, str],
) -> Settings:
    """Check what concerns several sections, and make paths absolute. Raises ConfigError."""
    errors: list[str] = []
    server, keys = sections["server"], sections["keys"]
    digests = _read_keys(server, base, environ, errors)
    admins = digests_from_variable("BATON_ADMIN_KEY", environ, errors)
    if keys.admin_key_file:
        admins |= digests_from_file("keys.admin_key_file", _absolute(keys.admin_key_file, base), errors)
    _check_exposure(server, digests | admins, keys.required, errors)
    errors += _check_workers(server.workers, models)
    errors += check_routes(named["routes"], models)
    served = {*models, *named["routes"]}
    errors += [
        f"{section}.{name}: there is no model or route of that name"
        for section in ("queues", "prices")
        for name in named[section]
        if name not in served
    ]
    if errors:
        raise ConfigError(errors)
    settled = {
        **sections,
        **named,
        "server": _absolute_path(server, "api_key_file", base),
        "keys": _absolute_path(keys, "admin_key_file", base),
        "store": sections["store"] if sections["store"].path == MEMORY else _absolute_path(sections["store"], "path", base),
    }
    return Settings(**settled, models=models, api_key_digests=digests, admin_key_digests=admins)


def missing_secrets(models: Mapping[str, ModelConfig], environ: Mapping[str, str]) -> list[str]:
    """Name the variables that must be set when the configuration is used, which need not be where it is only read."""
    return [
        f"models.{name}.api_key_env: the variable {model.api_key_env} is not set"
        for name, model in models.items()
        if isinstance(model, RemoteConfig) and model.api_key_env and not environ.get(model.api_key_env)
    ]


def _check_workers(count: int, models: Mapping[str, ModelConfig]) -> list[str]:
    return [
        f"models.{name}: {count} workers (server.workers) would load this model {count} times. Serve it by a Baton of its "
        'own with one worker, and name that one here with engine = "remote"'
        for name, model in models.items()
        if count > 1 and isinstance(model, ChildConfig)
    ]


def _read_named(cls: type[Struct], raw: object, section: str, errors: list[str]) -> dict[str, Struct]:
    if not isinstance(raw, dict):
        errors.append(f"{section}: must hold one table per name, not {shown(raw)}")
        return {}
    tables = {name: read_struct(cls, table, f"{section}.{name[:_MAX_MODEL_NAME_CHARS]}", errors) for name, table in raw.items()}
    return {name: table for name, table in tables.items() if table is not None}


def _read_file(path: Path) -> dict[str, Any]:
    try:
        if path.stat().st_size > _MAX_CONFIG_BYTES:
            raise ConfigError([f"{path} is larger than {_MAX_CONFIG_BYTES} bytes"])
        return tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise ConfigError([f"cannot read {path}: {error.strerror}"]) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError([f"{path} is not valid TOML: {error}"]) from None


def _absolute(path: str, base: Path) -> Path:
    return (base / Path(path).expanduser()).resolve()


def _read_models(raw: object, base: Path, errors: list[str]) -> dict[str, ModelConfig]:
    if not isinstance(raw, dict):
        errors.append(f"models: must hold one table per model, not {shown(raw)}")
        return {}
    if not raw:
        embedded = find_embedded_model()
        if embedded is None:
            errors.append(f"models: none is configured, and {MISSING}")
            return {}
        return {EMBEDDED_MODEL: EdgeConfig(path=str(embedded))}
    models = {name: _read_model(name, table, base, errors) for name, table in raw.items()}
    return {name: model for name, model in models.items() if model is not None}


def _read_model(name: str, raw: object, base: Path, errors: list[str]) -> ModelConfig | None:
    where = f"models.{name[:_MAX_MODEL_NAME_CHARS]}"
    if not name or len(name) > _MAX_MODEL_NAME_CHARS or not name.isprintable() or " " in name:
        errors.append(f"{where}: a model's name has 1 to {_MAX_MODEL_NAME_CHARS} printable characters without spaces")
        return None
    engine = raw.get("engine", "gguf") if isinstance(raw, dict) else "gguf"
    if not isinstance(engine, str) or engine not in ENGINES:
        errors.append(f"{where}.engine: must be one of {', '.join(ENGINES)} (it is {shown(engine)})")
        return None
    model = read_struct(ENGINES[engine], raw, where, errors, ignore=frozenset({"engine"}))
    if isinstance(model, RemoteConfig):
        return _with_paths(model, base)
    if not isinstance(model, EdgeConfig | EngineConfig):
        return model
    path = _absolute(model.path, base)
    if path.is_dir() and isinstance(model, EdgeConfig):
        errors.append(f'{where}.path: {path} is a folder, which only engine = "torch" serves')
    elif not path.is_dir() and not path.is_file():
        errors.append(f"{where}.path: there is no file {path}")
    return msgspec.structs.replace(model, path=str(path))


def _absolute_path(section: S, field: str, base: Path) -> S:
    """Resolve one path of a section; an empty one stays empty."""
    path = getattr(section, field)
    return msgspec.structs.replace(section, **{field: str(_absolute(path, base))}) if path else section


def _with_paths(model: RemoteConfig, base: Path) -> RemoteConfig:
    for field in ("api_key_file", "ca_file", "client_cert_file", "client_key_file"):
        model = _absolute_path(model, field, base)
    return model


def _read_keys(server: ServerConfig, base: Path, environ: Mapping[str, str], errors: list[str]) -> frozenset[bytes]:
    digests = digests_from_variable("BATON_API_KEY", environ, errors)
    if server.api_key_file:
        digests |= digests_from_file("server.api_key_file", _absolute(server.api_key_file, base), errors)
    return digests


def _check_exposure(server: ServerConfig, digests: frozenset[bytes], required: bool, errors: list[str]) -> None:
    if not server.host:
        errors.append("server.host: must not be empty (0.0.0.0 listens on every address)")
    elif not digests and not required and not server.allow_unauthenticated and not is_loopback(server.host):
        errors.append(
            f"server.host: {server.host} can be reached from other machines and no API key is set. Set BATON_API_KEY, "
            "server.api_key_file or keys.required = true, or say server.allow_unauthenticated = true"
        )
    errors += [
        f'server.cors_origins: {shown(origin)} must be "*", "localhost" or an origin such as https://app.example'
        for origin in server.cors_origins
        if origin not in ("*", "localhost") and "://" not in origin
    ]


def is_loopback(host: str) -> bool:
    """Say whether only this machine can reach `host`. Names other than localhost count as reachable."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"
