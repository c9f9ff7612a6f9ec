"""Names of token prefixes: equal names mean equal keys and values, so a block may be shared by its name.

A name is a hash over everything that the block's content depends on, chained from block to block. Python's `hash` would not
do: it differs between processes, and collisions can be made at will. One list of names serves all groups of layers.
"""

from hashlib import blake2b
from struct import Struct

_DIGEST_BYTES = 32


class Namer:
    """Computes names.

    Args:
        block: tokens in a block.
        lineage: what the keys and values depend on beside the tokens: the model's revision, and which weights produce them.
            Precisions whose blocks must not be mixed need different lineages.
    """

    def __init__(self, block: int, lineage: str) -> None:
        self.block = block
        self._lineage = lineage
        self._pack = Struct(f"<{block}I").pack

    def root(self, tenant: str, adapter: str) -> bytes:
        """Name the empty prefix. Tenants share nothing, nor do adapters (LoRA)."""
        digest = blake2b(b"baton prefix 1", digest_size=_DIGEST_BYTES)
        for field in (str(self.block), self._lineage, tenant, adapter):
            encoded = field.encode("utf-8", "surrogatepass")
            digest.update(len(encoded).to_bytes(8, "little") + encoded)
        return digest.digest()

    def extend(self, names: list[bytes], tokens: list[int], count: int) -> None:
        """Append until `names[k]` is the name of the first k blocks for all `k <= count`; `names[0]` is the root.

        Args:
            names: grows in place; what it holds already is taken as it is.
            tokens: at least `count` full blocks; ids of 0 to 2**32 - 1.
        """
        block, pack = self.block, self._pack
        for start in range((len(names) - 1) * block, count * block, block):
            names.append(blake2b(names[-1] + pack(*tokens[start : start + block]), digest_size=_DIGEST_BYTES).digest())


def common_blocks(a: list[bytes], b: list[bytes]) -> int:
    """Count the leading blocks that two lists of names share; -1 when not even the roots are equal.

    A name covers all before it, so bisection needs few comparisons.
    """
    low, high = 0, min(len(a), len(b))
    while low < high:
        middle = (low + high) // 2
        if a[middle] == b[middle]:
            low = middle + 1
        else:
            high = middle
    return low - 1
