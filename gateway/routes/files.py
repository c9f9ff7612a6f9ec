"""POST and GET /v1/files, GET and DELETE /v1/files/{id}, GET /v1/files/{id}/content."""

import asyncio
import os
from typing import IO, Any

import msgspec
from litestar import Request, delete, get, post
from litestar.datastructures import FormMultiDict, UploadFile
from litestar.handlers import BaseRouteHandler
from litestar.params import FromPath
from litestar.types import ASGIApp, HTTPReceiveMessage, Receive, Scope, Send, WebSocketReceiveMessage

from gateway.batches.errors import telling
from gateway.batches.files import FileStore
from gateway.batches.folder import PIECE_BYTES
from gateway.batches.paging import read_page
from gateway.errors import InvalidRequest
from gateway.response import API_VERSION, JsonReply
from gateway.routes.reply import identity_of
from gateway.schema.batches import MAX_EXPIRY_S, MIN_EXPIRY_S, FileDeleted, FilePage

_PATH = "/v1/files"
_MAX_LIMIT = 10_000
_MAX_NAME_CHARS = 255
_FIELDS = frozenset({"file", "purpose", "expires_after[anchor]", "expires_after[seconds]"})

_encode = msgspec.json.Encoder().encode


def file_routes(files: FileStore) -> tuple[BaseRouteHandler, ...]:
    """Build the handlers. Nobody sees the files of another tenant."""

    @post(_PATH, status_code=200)
    async def upload(request: Request[Any, Any, Any]) -> ASGIApp:
        """Store a file."""
        form = await _read_form(request)
        try:
            file, name, expires_s = _read_fields(form)
            size = await asyncio.to_thread(_size, file)
            with telling():
                tenant = identity_of(request).tenant
                stored = await files.create(tenant, name, "batch", file, size=size, expires_s=expires_s)
        finally:
            await _close(form)
        return JsonReply(_encode(stored))

    @get(_PATH)
    async def list_files(request: Request[Any, Any, Any]) -> ASGIApp:
        """Show files, newest first unless asked otherwise."""
        page = read_page(request.query_params, limit=_MAX_LIMIT, max_limit=_MAX_LIMIT)
        with telling():
            entries, has_more = await files.list(identity_of(request).tenant, page, request.query_params.get("purpose"))
        first, last = (entries[0].id, entries[-1].id) if entries else (None, None)
        return JsonReply(_encode(FilePage(data=entries, first_id=first, last_id=last, has_more=has_more)))

    @get(_PATH + "/{file_id:str}")
    async def retrieve(request: Request[Any, Any, Any], file_id: FromPath[str]) -> ASGIApp:
        """Describe a file."""
        with telling():
            return JsonReply(_encode(await files.get(identity_of(request).tenant, file_id)))

    @get(_PATH + "/{file_id:str}/content")
    async def content(request: Request[Any, Any, Any], file_id: FromPath[str]) -> ASGIApp:
        """Give what a file holds."""
        with telling():
            found, file = await files.open(identity_of(request).tenant, file_id)
        return FileReply(file, found.bytes)

    @delete(_PATH + "/{file_id:str}", status_code=200)
    async def remove(request: Request[Any, Any, Any], file_id: FromPath[str]) -> ASGIApp:
        """Remove a file for good."""
        with telling():
            await files.delete(identity_of(request).tenant, file_id)
        return JsonReply(_encode(FileDeleted(id=file_id)))

    return upload, list_files, retrieve, content, remove


class FileReply:
    """The contents of an open file, as one response of a known length. Closes the file."""

    def __init__(self, file: IO[bytes], size: int) -> None:
        self._file = file
        self._size = size

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it piece by piece; only one piece is in memory."""
        length = str(self._size).encode()
        headers = [(b"content-type", b"application/octet-stream"), (b"content-length", length), API_VERSION]
        try:
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            while piece := await asyncio.to_thread(self._file.read, PIECE_BYTES):
                await send({"type": "http.response.body", "body": piece, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            self._file.close()


async def _read_form(request: Request[Any, Any, Any]) -> FormMultiDict:
    if request.content_type[0] != "multipart/form-data":
        raise InvalidRequest("A file is uploaded as multipart/form-data.", code="invalid_content_type")
    try:
        return await Request[Any, Any, Any](request.scope, _in_pieces(request.receive)).form()
    except (ValueError, LookupError) as error:
        raise InvalidRequest(f"The form could not be read: {error}") from None


def _in_pieces(receive: Receive) -> Receive:
    """Hand a body out bit by bit: reading 60 MB in one go held up everybody for 0.1 to 0.3 s."""
    body, offset, is_more = b"", 0, True

    async def receive_piece() -> HTTPReceiveMessage | WebSocketReceiveMessage:
        nonlocal body, offset, is_more
        if offset >= len(body):
            message = await receive()
            if message["type"] != "http.request":
                return message
            body, offset, is_more = message["body"], 0, message["more_body"]
        await asyncio.sleep(0)
        piece = body[offset : offset + PIECE_BYTES]
        offset += len(piece)
        return {"type": "http.request", "body": piece, "more_body": is_more or offset < len(body)}

    return receive_piece


def _read_fields(form: FormMultiDict) -> tuple[IO[bytes], str, int | None]:
    """The file, its name and the seconds after which it goes. Raises InvalidRequest."""
    for name in form:
        if name not in _FIELDS:
            raise InvalidRequest(f"Unknown parameter: '{name[:80]}'.", param=name, code="unknown_parameter")
        if len(form.getall(name)) > 1:
            raise InvalidRequest(f"'{name}' was given more than once.", param=name, code="invalid_value")
    file, purpose = form.get("file"), form.get("purpose")
    if not isinstance(file, UploadFile):
        raise InvalidRequest("Missing required parameter: 'file'.", param="file", code="missing_required_parameter")
    if purpose != "batch":
        text = "'purpose' must be 'batch': files serve nothing else here."
        raise InvalidRequest(text, param="purpose", code="invalid_value")
    return file.file, file.filename[:_MAX_NAME_CHARS], _expiry(form)


def _expiry(form: FormMultiDict) -> int | None:
    anchor, seconds = form.get("expires_after[anchor]"), form.get("expires_after[seconds]")
    if anchor is None and seconds is None:
        return None
    if anchor != "created_at":
        text = "'expires_after[anchor]' must be 'created_at'."
        raise InvalidRequest(text, param="expires_after[anchor]", code="invalid_value")
    value = int(seconds) if isinstance(seconds, str) and seconds.isascii() and seconds.isdecimal() and len(seconds) < 10 else 0
    if not MIN_EXPIRY_S <= value <= MAX_EXPIRY_S:
        text = f"'expires_after[seconds]' must be {MIN_EXPIRY_S} to {MAX_EXPIRY_S}."
        raise InvalidRequest(text, param="expires_after[seconds]", code="invalid_value")
    return value


def _size(file: IO[bytes]) -> int:
    """The bytes of a file, which stands at its beginning afterwards."""
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    return size


async def _close(form: FormMultiDict) -> None:
    for _, value in form.multi_items():
        if isinstance(value, UploadFile):
            await value.close()
