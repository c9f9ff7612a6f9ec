"""What can be set, and how it becomes the frozen `Settings` of one run.

Sources, later ones winning: defaults, one TOML file, the environment (`gateway.config_sources.environment`), the command line.
Everything is checked once, here; `ConfigError` lists all mistakes. Loading reads files and checks that they exist, but opens no
model, no socket and no log.
"""

import ipaddress
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from backends.fake import FakeModel
from edge.config import EdgeConfig
from gateway.config_sources.api_keys import digests_from_file, digests_from_variable
from gateway.config_sources.embedded import EMBEDDED_MODEL, MISSING, find_embedded_model
from gateway.config_sources.environment import apply_environment
from gateway.config_sources.reader import ConfigError, read_struct, shown, unknown_key

ModelConfig = EdgeConfig | FakeModel
ENGINES: Mapping[str, type[EdgeConfig] | type[FakeModel]] = {"gguf": EdgeConfig, "fake": FakeModel}

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


class Settings(Struct, frozen=True, kw_only=True):
    """One resolved configuration. Paths are absolute; of API keys only SHA-256 digests are here."""

    server: ServerConfig
    models: dict[str, ModelConfig]
    api_key_digests: frozenset[bytes] = frozenset()


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
    apply_environment(raw, environ, ServerConfig, ENGINES, errors)
    for section, table in (overrides or {}).items():
        target = raw.setdefault(section, {})
        if isinstance(target, dict):
            target.update(table)
    errors += [unknown_key("", key, ("server", "models")) for key in raw if key not in ("server", "models")]
    base = path.resolve().parent if path is not None else Path.cwd()
    server = read_struct(ServerConfig, raw.get("server", {}), "server", errors)
    models = _read_models(raw.get("models", {}), base, errors)
    digests = _read_keys(server, base, environ, errors)
    if server is not None:
        _check_exposure(server, digests, errors)
    if errors or server is None:
        raise ConfigError(errors)
    if server.api_key_file:
        server = msgspec.structs.replace(server, api_key_file=str(_absolute(server.api_key_file, base)))
    return Settings(server=server, models=models, api_key_digests=digests)


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
    if not isinstance(model, EdgeConfig):
        return model
    path = _absolute(model.path, base)
    if not path.is_file():
        errors.append(f"{where}.path: there is no file {path}")
    return msgspec.structs.replace(model, path=str(path))


def _read_keys(server: ServerConfig | None, base: Path, environ: Mapping[str, str], errors: list[str]) -> frozenset[bytes]:
    digests = digests_from_variable(environ.get("BATON_API_KEY", ""), errors)
    if server is not None and server.api_key_file:
        digests |= digests_from_file(_absolute(server.api_key_file, base), errors)
    return digests


def _check_exposure(server: ServerConfig, digests: frozenset[bytes], errors: list[str]) -> None:
    if not server.host:
        errors.append("server.host: must not be empty (0.0.0.0 listens on every address)")
    elif not digests and not server.allow_unauthenticated and not is_loopback(server.host):
        errors.append(
            f"server.host: {server.host} can be reached from other machines and no API key is set. Set BATON_API_KEY or "
            "server.api_key_file, or say server.allow_unauthenticated = true"
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
