"""The configuration, its models' files and its port."""

import errno
import socket
from pathlib import Path

from backends.child.config import ChildConfig
from backends.child.errors import LoadError
from backends.engine.config import EngineConfig
from backends.engine.model_card import describe
from backends.remote.config import RemoteConfig
from gateway.cli.checks.finding import Finding
from gateway.config import ServerConfig, Settings

_MAGIC = b"GGUF"
_MIB = 1 << 20


def check_models(settings: Settings) -> list[Finding]:
    """Are the models' files there, and can the engine make something of their headers? Remote models have none."""
    findings = []
    for name, model in settings.models.items():
        if isinstance(model, RemoteConfig):
            continue
        if not isinstance(model, ChildConfig):
            findings.append(Finding("ok", f"model {name}", "answers by itself, without a file"))
        elif isinstance(model, EngineConfig):
            findings.append(_check_headers(name, Path(model.path)))
        else:
            findings.append(_check_magic(name, Path(model.path)))
    return findings


def _check_headers(name: str, path: Path) -> Finding:
    try:
        card = describe(name, path)
    except LoadError as error:
        return Finding("fail", f"model {name}", str(error), "download its files again, or use another model")
    return Finding("ok", f"model {name}", f"{path} ({(card.size_bytes or 0) / _MIB:.0f} MiB, {card.architecture})")


def _check_magic(name: str, path: Path) -> Finding:
    try:
        with path.open("rb") as file:
            magic = file.read(len(_MAGIC))
    except OSError as error:
        return Finding("fail", f"model {name}", f"{path}: {error.strerror}", "check the path and its permissions")
    if magic != _MAGIC:
        return Finding("fail", f"model {name}", f"{path} is no GGUF file", "download it again, or convert it to GGUF")
    return Finding("ok", f"model {name}", f"{path} ({path.stat().st_size / _MIB:.0f} MiB)")


def model_bytes(settings: Settings) -> int:
    """Add up the sizes of all models' files, in bytes."""
    paths = [Path(model.path) for model in settings.models.values() if isinstance(model, ChildConfig)]
    weights = [file for path in paths for file in (path.glob("*.safetensors") if path.is_dir() else (path,))]
    return sum(file.stat().st_size for file in weights if file.is_file())


def check_port(server: ServerConfig) -> Finding:
    """Can the gateway listen where it shall?"""
    where = f"{server.host}:{server.port}"
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(server.host.strip("[]"), server.port, type=socket.SOCK_STREAM)[
            0
        ]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
            probe.listen(1)
    except OSError as error:
        busy = error.errno == errno.EADDRINUSE
        fix = (
            "stop the program that uses it (perhaps a running Baton), or choose another port" if busy else "choose another host"
        )
        return Finding("warn" if busy else "fail", "port", f"{where}: {error.strerror or error}", fix)
    return Finding("ok", "port", f"{where} is free")
