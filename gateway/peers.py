"""How the worker processes of one gateway ask each other: Unix sockets in a folder that belongs to this gateway alone.

A question is a line, the answer all bytes up to the end of the connection. A worker that does not answer is no error: it may
have crashed a moment ago, and then another takes its place.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

Answer = Callable[[], Awaitable[bytes]]

MAX_ANSWER_BYTES = 32 << 20
_MAX_QUESTION_BYTES = 64
_QUESTION_TIMEOUT_S = 5.0


class Peers:
    """One worker among `count`.

    Args:
        folder: where all of them have their sockets.
        index: of this one, from 0.
    """

    def __init__(self, folder: Path, index: int, count: int) -> None:
        self.folder, self.index, self.count = folder, index, count
        self._answers: Mapping[str, Answer] = {}
        self._server: asyncio.Server | None = None

    async def listen(self, answers: Mapping[str, Answer]) -> None:
        """Answer these questions from now on. Raises OSError when the socket cannot be made."""
        self._answers = answers
        path = self._socket(self.index)
        path.unlink(missing_ok=True)
        self._server = await asyncio.start_unix_server(self._serve, path, limit=_MAX_QUESTION_BYTES)

    async def ask(self, question: str, timeout_s: float) -> dict[int, bytes | None]:
        """Ask all the others at the same time; None stands for no answer within `timeout_s`."""
        others = [index for index in range(self.count) if index != self.index]
        answers = await asyncio.gather(*(self._ask(index, question, timeout_s) for index in others))
        return dict(zip(others, answers, strict=True))

    async def close(self) -> None:
        """Answer nothing any more. May be called twice."""
        if self._server is not None:
            self._server.close()
            self._server = None

    def _socket(self, index: int) -> Path:
        return self.folder / f"{index}.sock"

    async def _ask(self, index: int, question: str, timeout_s: float) -> bytes | None:
        try:
            async with asyncio.timeout(timeout_s):
                reader, writer = await asyncio.open_unix_connection(self._socket(index))
                try:
                    writer.write(f"{question}\n".encode())
                    return await _read_all(reader)
                finally:
                    writer.close()
        except (OSError, TimeoutError):
            return None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            answer = self._answers.get(await _question(reader))
            if answer is not None:
                writer.write(b"\0" + await answer())
                await writer.drain()
        except OSError:
            # Whoever asked is gone.
            return
        finally:
            writer.close()


async def _question(reader: asyncio.StreamReader) -> str:
    """The first line; empty when none comes that could be a question."""
    try:
        async with asyncio.timeout(_QUESTION_TIMEOUT_S):
            return (await reader.readline()).decode("latin-1").strip()
    except (TimeoutError, ValueError):
        return ""


async def _read_all(reader: asyncio.StreamReader) -> bytes | None:
    """The answer, without the byte that tells an empty one from none at all."""
    data = bytearray()
    while piece := await reader.read(1 << 16):
        data += piece
        if len(data) > MAX_ANSWER_BYTES:
            return None
    return bytes(data[1:]) if data else None
