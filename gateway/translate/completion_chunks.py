"""Deltas to the chunks of a legacy completion stream: text and finish reason side by side, no roles."""

from backends.types import Delta
from gateway.translate.chunk_frame import ChunkFrame, encode
from gateway.translate.ending import OpenAiEnding
from gateway.translate.logprobs import LegacyLogprobs
from gateway.translate.stamp import Stamp


class CompletionChunks(OpenAiEnding):
    """Encodes one stream; keeps the text offsets of each choice."""

    def __init__(self, stamp: Stamp, size: int, *, include_usage: bool, logprobs: int | None) -> None:
        self._frame = ChunkFrame(stamp, "text_completion", size, include_usage=include_usage)
        self._logprobs = None if logprobs is None else [LegacyLogprobs(logprobs) for _ in range(size)]

    def encode(self, delta: Delta) -> bytes:
        """The events of one delta; empty when it shows nothing."""
        events = b""
        if delta.text or delta.logprobs or delta.finish is not None:
            logprobs = b"null"
            if self._logprobs is not None and delta.logprobs:
                logprobs = encode(self._logprobs[delta.index].take(delta.logprobs))
            events = b"".join(
                (
                    self._frame.heads[delta.index],
                    b'"text":',
                    encode(delta.text),
                    b',"logprobs":',
                    logprobs,
                    b',"finish_reason":',
                    encode(delta.finish),
                    b"}",
                    self._frame.tail,
                )
            )
        return events if delta.usage is None else events + self._frame.usage(delta.usage)
