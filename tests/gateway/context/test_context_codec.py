"""Bytes at rest: whatever was sealed comes back, whatever was not is refused."""

from contextlib import suppress

import msgspec
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.context.codec import COMPRESS_FROM_BYTES, PLAIN, ZSTD, Damaged, seal, unseal
from gateway.context.errors import InvalidId
from gateway.context.items import MAX_UNPACKED_BYTES, pack, unpack
from gateway.context.scope import checked_id, scoped_key

TEXT = b"to be or not to be " * 200


@settings(deadline=None)
@given(st.binary(max_size=5000) | st.binary(max_size=20).map(lambda piece: piece * 500))
def test_what_was_sealed_comes_back(content: bytes) -> None:
    assert unseal(seal(content), limit=len(content)) == content


def test_only_what_gets_shorter_is_compressed() -> None:
    assert seal(TEXT)[:1] == ZSTD
    assert len(seal(TEXT)) < len(TEXT) / 10
    assert seal(TEXT[: COMPRESS_FROM_BYTES - 1])[:1] == PLAIN
    dense = zstandard.ZstdCompressor(level=19).compress(bytes(range(256)) * 40) * 30
    noise = b"".join(scoped_key("", "noise", b"%d" % number) for number in range(100))
    assert seal(noise)[:1] == PLAIN
    assert unseal(seal(dense), limit=1 << 20) == dense


def test_no_changed_byte_goes_unnoticed_in_what_is_compressed() -> None:
    sealed = seal(TEXT)
    assert sealed[:1] == ZSTD
    for place in range(1, len(sealed)):
        for change in range(1, 256):
            changed = bytearray(sealed)
            changed[place] ^= change
            # Some bits of the frame's header mean nothing.
            with suppress(Damaged):
                assert unseal(bytes(changed), limit=1 << 20) == TEXT


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_noise_is_refused_or_plain(noise: bytes) -> None:
    with suppress(Damaged):
        assert unseal(noise, limit=1000) == noise[1:]


def test_more_than_the_limit_is_never_unpacked() -> None:
    bomb = ZSTD + zstandard.ZstdCompressor().compress(bytes(64 << 20))
    assert len(bomb) < 10_000
    with pytest.raises(Damaged, match="67108864 bytes, the limit is 1000"):
        unseal(bomb, limit=1000)
    with pytest.raises(Damaged, match="4 bytes, the limit is 3"):
        unseal(PLAIN + b"1234", limit=3)


def test_a_frame_that_hides_or_lies_about_its_size_is_refused() -> None:
    silent = zstandard.ZstdCompressor(write_content_size=False).compress(TEXT)
    with pytest.raises(Damaged, match="does not state its size"):
        unseal(ZSTD + silent, limit=1 << 20)
    with pytest.raises(Damaged, match="broken frame"):
        unseal(seal(TEXT)[:-10], limit=1 << 20)
    with pytest.raises(Damaged, match="broken frame"):
        unseal(seal(TEXT) + b"more", limit=1 << 20)
    with pytest.raises(Damaged, match="unknown codec none"):
        unseal(b"", limit=1)


LISTS = msgspec.msgpack.Decoder(tuple[bytes, ...])


async def test_all_segments_together_have_one_limit() -> None:
    half = await pack([bytes(MAX_UNPACKED_BYTES // 2)], 1)
    with pytest.raises(Damaged, match=r"the limit is \d+$"):
        await unpack([half, half], LISTS)


async def test_a_segment_beyond_the_limit_is_not_unpacked() -> None:
    bomb = ZSTD + zstandard.ZstdCompressor().compress(bytes(MAX_UNPACKED_BYTES + 1))
    with pytest.raises(Damaged, match=f"the content has {MAX_UNPACKED_BYTES + 1} bytes"):
        await unpack([bomb], LISTS)


names = st.binary(max_size=20)
tenants = st.text(max_size=5)
kinds = st.sampled_from(["conversation", "response", "answer"])


@settings(deadline=None)
@given(st.tuples(tenants, kinds, names), st.tuples(tenants, kinds, names))
def test_keys_are_equal_only_for_equal_names(one: tuple[str, str, bytes], two: tuple[str, str, bytes]) -> None:
    assert (scoped_key(*one) == scoped_key(*two)) == (one == two)


def test_keys_of_tenants_that_differ_by_padding_differ() -> None:
    assert len({scoped_key(tenant, "answer", b"x") for tenant in ("a", "a\0", "a\0\0", "\0a", "")}) == 5


@settings(deadline=None)
@given(st.text(max_size=70))
def test_an_id_is_refused_or_kept_as_it_is(text: str) -> None:
    with suppress(InvalidId):
        assert checked_id(text, "conversation").decode() == text
