"""A client that writes and reads bytes, for what no HTTP library lets one see or do."""

import json
import socket
from typing import Any

HI = [{"role": "user", "content": "hi"}]


def request_bytes(path: str, body: Any, *, method: str = "POST") -> bytes:
    payload = body if isinstance(body, bytes) else json.dumps(body).encode()
    head = f"{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(payload)}\r\n\r\n"
    return head.encode() + payload


def connect(port: int, path: str, body: Any) -> socket.socket:
    """Send a request and leave the connection open."""
    connection = socket.create_connection(("127.0.0.1", port), timeout=10)
    connection.sendall(request_bytes(path, body))
    return connection


def read_until(connection: socket.socket, mark: bytes) -> bytes:
    seen = b""
    while mark not in seen:
        piece = connection.recv(65536)
        assert piece, f"the connection ended after {seen[-200:]!r}"
        seen += piece
    return seen
