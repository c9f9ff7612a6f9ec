"""Hashes that are the same in every process and after every restart, so that all workers send a conversation to one place."""

from hashlib import blake2b

_MASK = (1 << 64) - 1
_UNIT = 2.0**-52


def stable_hash(text: str) -> int:
    """64 bits of a text."""
    return int.from_bytes(blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")


def mix(value: int, seed: int) -> int:
    """64 well spread bits of a number, other ones for each seed. The finaliser of SplitMix64 (Steele et al., 2014)."""
    z = (value ^ seed) & _MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return z ^ (z >> 31)


def uniform(value: int, seed: int) -> float:
    """A number between 0 and 1, neither of them included, that depends on nothing but the arguments."""
    # With 52 bits and a half the product is exact: 64 would round up to 1.
    return ((mix(value, seed) >> 12) + 0.5) * _UNIT
