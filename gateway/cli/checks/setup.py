"""The configuration, its model files and its port."""

import errno
import socket
from pathlib import Path

from backends.remote.config import RemoteConfig
from edge.config import EdgeConfig
from gateway.cli.checks.finding import Finding
from gateway.config import ServerConfig, Settings

_MAGIC = b"GGUF"
_MIB = 1 << 20


def check_models(settings: Settings) -> list[Finding]:
    """Are the model files there, and do they begin like GGUF files? Remote models have none."""
    findings = []
    for name, model in settings.models.items():
        if isinstance(model, RemoteConfig):
            continue
        if not isinstance(model, EdgeConfig):
            findings.append(Finding("ok", f"model {name}", "answers by itself, without a file"))
            continue
        path = Path(model.path)
        try:
            with path.open("rb") as file:
                magic = file.read(len(_MAGIC))
        except OSError as error:
            findings.append(Finding("fail", f"model {name}", f"{path}: {error.strerror}", "check the path and its permissions"))
            continue
        if magic == _MAGIC:
            findings.append(Finding("ok", f"model {name}", f"{path} ({path.stat().st_size / _MIB:.0f} MiB)"))
        else:
            findings.append(
                Finding("fail", f"model {name}", f"{path} is no GGUF file", "download it again, or convert it to GGUF")
            )
    return findings


def model_bytes(settings: Settings) -> int:
    """Add up the sizes of all model files, in bytes."""
    paths = [Path(model.path) for model in settings.models.values() if isinstance(model, EdgeConfig)]
    return sum(path.stat().st_size for path in paths if path.is_file())


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
