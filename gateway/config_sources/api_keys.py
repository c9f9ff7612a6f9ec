"""API keys: from a variable (one key, or several with commas between) and from a file with one key a line.

Only SHA-256 digests leave this module. A line `sha256:<64 hex digits>` holds a digest, so that the file need not hold the key:
`printf %s "$KEY" | sha256sum`. Empty lines and lines that start with `#` are skipped.
"""

import re
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path

_KEY = re.compile(r"[\x21-\x7e]{1,512}")
_DIGEST = re.compile(r"sha256:([0-9a-fA-F]{64})")
_MAX_FILE_BYTES = 1 << 20


def digests_from_variable(name: str, environ: Mapping[str, str], errors: list[str]) -> frozenset[bytes]:
    """Read a variable, which may be missing; mistakes are appended to `errors`, without the key."""
    value = environ.get(name, "")
    return frozenset(_digest(key.strip(), name, errors) for key in value.split(",") if key.strip())


def digests_from_file(setting: str, path: Path, errors: list[str]) -> frozenset[bytes]:
    """Read the key file that a setting names; mistakes are appended to `errors` with their line, without the key."""
    try:
        if path.stat().st_size > _MAX_FILE_BYTES:
            errors.append(f"{setting}: {path} is larger than {_MAX_FILE_BYTES} bytes")
            return frozenset()
        lines = path.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        errors.append(f"{setting}: cannot read {path}: {getattr(error, 'strerror', None) or 'it is not UTF-8'}")
        return frozenset()
    digests = frozenset(
        _digest(line.strip(), f"{path}, line {number}", errors)
        for number, line in enumerate(lines, 1)
        if line.strip() and not line.lstrip().startswith("#")
    )
    if not digests:
        errors.append(f"{setting}: {path} holds no key")
    return digests


def _digest(text: str, where: str, errors: list[str]) -> bytes:
    hashed = _DIGEST.fullmatch(text)
    if hashed:
        return bytes.fromhex(hashed[1])
    if text.startswith("sha256:") or not _KEY.fullmatch(text):
        errors.append(f"{where}: a key is 1 to 512 printable ASCII characters without spaces, or sha256: and 64 hex digits")
    return sha256(text.encode("utf-8", "replace")).digest()
