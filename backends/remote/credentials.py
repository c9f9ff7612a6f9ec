"""What a connection needs from outside the configuration: the API key and the TLS context. Read once, at the start."""

import os
import re
import ssl
from collections.abc import Mapping
from pathlib import Path

from backends.remote.config import RemoteConfig

_KEY = re.compile(r"[\x21-\x7e]{1,4096}")
_MAX_KEY_FILE_BYTES = 1 << 16


def read_api_key(config: RemoteConfig, environ: Mapping[str, str] = os.environ) -> str:
    """The key to send; empty when none is configured.

    Raises:
        ValueError: it is configured but missing, unreadable or no key; the text names the place and never the content.
    """
    if config.api_key_env:
        key = environ.get(config.api_key_env, "").strip()
        where = f"the environment variable {config.api_key_env}"
    elif config.api_key_file:
        key = _read_file(Path(config.api_key_file))
        where = config.api_key_file
    else:
        return ""
    if not _KEY.fullmatch(key):
        raise ValueError(f"{where} holds no API key: 1 to 4096 printable ASCII characters without spaces are expected")
    return key


def _read_file(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(_MAX_KEY_FILE_BYTES).decode("utf-8", "replace").strip()
    except OSError as error:
        raise ValueError(f"cannot read {path}: {error.strerror}") from None


def tls_context(config: RemoteConfig) -> ssl.SSLContext:
    """How to speak TLS. For plain HTTP it trusts nobody, because loading the system's authorities takes 50 ms.

    Raises:
        ValueError: a file is missing or is not what it should be.
    """
    if not config.base_url.startswith("https:"):
        return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        context = ssl.create_default_context(cafile=config.ca_file or None)
        if config.client_cert_file:
            context.load_cert_chain(config.client_cert_file, config.client_key_file or None)
    except (OSError, ssl.SSLError) as error:
        reason = getattr(error, "strerror", None) or "not a PEM file"
        raise ValueError(f"cannot load the TLS files: {reason}") from None
    if not config.verify_tls:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
