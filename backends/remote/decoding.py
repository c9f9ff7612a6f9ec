"""Undoes a compression that was never asked for: some servers and the proxies before them compress whatever they are told."""

import zlib

from backends.remote.errors import protocol_error

MAX_RATIO = 200
_FREE_BYTES = 1 << 16
_GZIP_BITS = 16 + zlib.MAX_WBITS


class Inflater:
    """Decompresses a body piece by piece; one piece grows at most 200-fold, beyond 64 KiB.

    Args:
        encoding: the `content-encoding` of the answer: gzip or deflate.
    """

    def __init__(self, encoding: str) -> None:
        if encoding not in ("gzip", "x-gzip", "deflate"):
            raise protocol_error(f"The upstream server answered in the encoding {encoding[:40]!a}, which was not asked for.")
        self._inflater = None if encoding == "deflate" else zlib.decompressobj(_GZIP_BITS)

    def push(self, data: bytes) -> bytes:
        """Take compressed bytes and return what they hold so far.

        Raises:
            Failed: they are not what the encoding says, or grow too much.
        """
        if self._inflater is None:
            # "deflate" means zlib by the standard, and raw deflate to some servers. A zlib stream begins with method 8.
            self._inflater = zlib.decompressobj(zlib.MAX_WBITS if data[0] & 15 == 8 else -zlib.MAX_WBITS)
        try:
            plain = self._inflater.decompress(data, max(_FREE_BYTES, MAX_RATIO * len(data)))
        except zlib.error:
            raise protocol_error("The upstream server's answer could not be decompressed.") from None
        if self._inflater.unconsumed_tail:
            raise protocol_error(f"The upstream server's answer grows more than {MAX_RATIO}-fold when it is decompressed.")
        return plain
