"""Bytes at rest: one byte that names the codec, then the content, compressed where that pays.

What comes back from a store is not trusted: a frame must state its size, and no more than the caller's limit is ever unpacked.
Source: RFC 8878 (Zstandard), section 3.1.1, "Frame_Content_Size" and "Content_Checksum".
"""

import zstandard

PLAIN = b"\x00"
ZSTD = b"\x01"
COMPRESS_FROM_BYTES = 1024
_LEVEL = 3


class Damaged(Exception):
    """The stored bytes are not what was written, or larger than anything that is written."""


def seal(content: bytes) -> bytes:
    """Turn content into what is stored; from 1 kB on it is compressed, unless that makes it longer."""
    if len(content) >= COMPRESS_FROM_BYTES:
        # The objects of the library belong to one thread at a time, and cost little beside the work.
        packed = zstandard.ZstdCompressor(level=_LEVEL, write_checksum=True).compress(content)
        if len(packed) < len(content):
            return ZSTD + packed
    return PLAIN + content


def unseal(stored: bytes, *, limit: int) -> bytes:
    """Return the content that `seal` was given.

    Args:
        limit: the most bytes that the content may have.

    Raises:
        Damaged: an unknown codec, a broken frame, or content beyond the limit.
    """
    codec, packed = stored[:1], stored[1:]
    if codec == PLAIN:
        size = len(packed)
    elif codec == ZSTD:
        size = _stated_size(packed)
    else:
        raise Damaged(f"unknown codec {codec.hex() or 'none'}")
    if size > limit:
        raise Damaged(f"the content has {size} bytes, the limit is {limit}")
    return packed if codec == PLAIN else _decompress(packed)


def _stated_size(packed: bytes) -> int:
    try:
        size = zstandard.frame_content_size(packed)
    except zstandard.ZstdError as error:
        raise Damaged(f"broken frame: {error}") from None
    if size < 0:
        raise Damaged("the frame does not state its size")
    # The library returns nothing for a frame of size 0, without a look at what is in it.
    if size < COMPRESS_FROM_BYTES:
        raise Damaged(f"a frame of {size} bytes, which is less than anything that is compressed")
    return size


def _decompress(packed: bytes) -> bytes:
    try:
        return zstandard.ZstdDecompressor().decompress(packed, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise Damaged(f"broken frame: {error}") from None
