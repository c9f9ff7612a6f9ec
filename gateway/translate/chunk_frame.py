"""The constant bytes around what changes in a chunk of a stream.

A chunk has ten fields of which one changes from token to token, and this code runs on the cores that compute the model: so the
head is encoded once per stream and choice.
"""

import msgspec

from backends.types import Usage
from gateway.translate.generation import to_wire_usage
from gateway.translate.stamp import Stamp

encode = msgspec.json.Encoder().encode


class ChunkFrame:
    """`heads[i]` ends behind `"index":i,`; `tail` begins behind the choice's closing brace.

    Args:
        kind: the `object` field.
        size: the number of choices.
        include_usage: whether a usage chunk ends the stream, which puts `"usage":null` into every other chunk.
    """

    def __init__(self, stamp: Stamp, kind: str, size: int, *, include_usage: bool) -> None:
        fields = {
            "id": stamp.id,
            "object": kind,
            "created": stamp.created,
            "model": stamp.model,
            "system_fingerprint": stamp.fingerprint,
        }
        self._common = b"data: " + encode(fields)[:-1] + b',"choices":['
        self._include_usage = include_usage
        self.heads = [self._common + b'{"index":%d,' % index for index in range(size)]
        self.tail = b'],"usage":null}\n\n' if include_usage else b"]}\n\n"

    def usage(self, usage: Usage) -> bytes:
        """The usage chunk, which has no choices; nothing when it was not asked for."""
        if not self._include_usage:
            return b""
        return self._common + b'],"usage":' + encode(to_wire_usage(usage)) + b"}\n\n"
