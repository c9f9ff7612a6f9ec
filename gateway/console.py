"""Serves the console: the files of `gateway/console_page/`, read once when the application is built.

The page may load scripts and styles only from here, and talk only to this gateway (Content-Security-Policy), so that nothing a
model writes can call home even if it got into the page.
"""

from collections.abc import Mapping
from hashlib import sha256
from mimetypes import guess_type
from pathlib import Path
from typing import Any

from litestar import Request, Response, get
from litestar.handlers import HTTPRouteHandler
from msgspec import Struct

CONSOLE_FOLDER = Path(__file__).parent / "console_page"
_INDEX = "index.html"
_PREFIX = "/console/"

_HEADERS = {
    "cache-control": "no-cache",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
}


class ConsoleFile(Struct, frozen=True):
    """A file as it is sent."""

    body: bytes
    media_type: str
    etag: str


def read_console(folder: Path = CONSOLE_FOLDER) -> dict[str, ConsoleFile]:
    """Read the files of the console, by URL path."""
    files = {}
    for path in sorted(folder.iterdir()):
        if path.is_file():
            body = path.read_bytes()
            kind = guess_type(path.name)[0] or "application/octet-stream"
            media_type = f"{kind}; charset=utf-8" if kind.startswith("text/") else kind
            url = "/" if path.name == _INDEX else _PREFIX + path.name
            files[url] = ConsoleFile(body, media_type, f'"{sha256(body).hexdigest()[:16]}"')
    return files


def console_route(files: Mapping[str, ConsoleFile]) -> HTTPRouteHandler:
    """Build the handler of all files; a browser that has the current version gets 304."""

    @get(list(files), name="console")
    async def console(request: Request[Any, Any, Any]) -> Response[bytes]:
        file = files[request.scope["path"].rstrip("/") or "/"]
        headers = {**_HEADERS, "etag": file.etag, "content-type": file.media_type}
        if request.headers.get("if-none-match") == file.etag:
            return Response(b"", status_code=304, headers=headers)
        return Response(file.body, headers=headers)

    return console
