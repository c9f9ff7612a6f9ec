"""Sends the head of a response together with the beginning of its body.

uvicorn writes both by themselves, and uvloop hands each write to the kernel at once: two system calls, and a client that is
woken twice. A head is held back here until the next write, or else until the end of the event loop's turn.
"""

import asyncio
from typing import Any

_HEAD = b"HTTP/1.1 "


class JoinedWrites(asyncio.Transport):
    """A transport in front of another. What looks like a head in the middle of a body is held for a moment too, in order."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self._transport = transport
        self._loop = loop
        self._held = b""

    def write(self, data: Any) -> None:
        """Write, behind what is held."""
        if self._held:
            data, self._held = self._held + data, b""
        elif data.startswith(_HEAD):
            self._held = data
            self._loop.call_soon(self._flush)
            return
        self._transport.write(data)

    def _flush(self) -> None:
        if self._held:
            held, self._held = self._held, b""
            self._transport.write(held)

    def close(self) -> None:
        """Close when everything is written."""
        self._flush()
        self._transport.close()

    def abort(self) -> None:
        """Close at once."""
        self._held = b""
        self._transport.abort()

    def is_closing(self) -> bool:
        """Whether it is closed, or will be."""
        return self._transport.is_closing()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """About the socket."""
        return self._transport.get_extra_info(name, default)

    def get_write_buffer_size(self) -> int:
        """Bytes that are not sent yet."""
        return len(self._held) + self._transport.get_write_buffer_size()

    def pause_reading(self) -> None:
        """Read no more for now."""
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Read again."""
        self._transport.resume_reading()

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Hand over to another protocol."""
        self._flush()
        self._transport.set_protocol(protocol)

    def get_protocol(self) -> asyncio.BaseProtocol:
        """Whose transport it is."""
        return self._transport.get_protocol()
