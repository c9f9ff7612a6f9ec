"""The block manager: what each sequence holds of each group's pool, what it may share, what it gives back.

A sequence has one block table per group, all of one length: entry i is the block with positions `i * block` to
`(i + 1) * block - 1`. In a group with a window, blocks that no later token can read are given back while the sequence runs;
their entries are -1. A full block is named once it was computed, and found from then on by other sequences of the same tenant.
"""

import sys
from collections.abc import Iterable
from dataclasses import dataclass, field

from backends.engine.kv.blocks import BlockPool, Reason
from backends.engine.kv.groups import KvGroup
from backends.engine.kv.names import Namer


@dataclass(slots=True, eq=False)
class Holding:
    """What one sequence holds.

    Args:
        tables: per group, the blocks by position; -1 for one that was given back because no later token reads it.
        names: `names[k]` names the first k blocks, as far as that was asked for.
        slid: per group, how many leading entries are -1.
        own_from: blocks before this one were never entered by this sequence, in none of its lives.
        named: how many leading blocks were entered under their names.
    """

    tables: list[list[int]] = field(default_factory=list)
    names: list[bytes] = field(default_factory=list)
    slid: list[int] = field(default_factory=list)
    own_from: int = sys.maxsize
    named: int = 0

    @property
    def num_blocks(self) -> int:
        """Length of the block tables."""
        return len(self.tables[0])


@dataclass(frozen=True, slots=True)
class BlockCopy:
    """Copy all keys and values of block `source` to block `target`, in the pool of group `group`."""

    group: int
    source: int
    target: int


class BlockManager:
    """All blocks of one model.

    Args:
        groups: at least one; all with the same block size.
        lineage: see `Namer`.
    """

    def __init__(self, groups: Iterable[KvGroup], lineage: str = "") -> None:
        self.groups = tuple(groups)
        self.block = self.groups[0].block
        assert all(group.block == self.block for group in self.groups)
        self.pools = tuple(BlockPool(group.blocks) for group in self.groups)
        self._namer = Namer(self.block, lineage)
        self._windowed = [g for g, group in enumerate(self.groups) if group.window]

    @property
    def available(self) -> int:
        """How many blocks the fullest pool could still hand out: a table that grows takes one of each group."""
        return min([pool.available for pool in self.pools])

    @property
    def evictions(self) -> int:
        """Blocks whose named content was thrown away to make room, so far."""
        return sum(pool.evictions for pool in self.pools)

    @property
    def max_tokens(self) -> int:
        """The longest sequence that can be computed when it has all blocks; `sys.maxsize` if there is no such bound."""
        return min(group.max_tokens for group in self.groups)

    def open(self, holding: Holding, tenant: str, adapter: str) -> None:
        """Prepare what a new sequence holds: nothing yet."""
        holding.names = [self._namer.root(tenant, adapter)]
        self._empty(holding)

    def name(self, holding: Holding, tokens: list[int]) -> None:
        """Compute the names of all full blocks of `tokens`."""
        self._namer.extend(holding.names, tokens, len(tokens) // self.block)

    def longest_hit(self, holding: Holding, limit: int) -> int:
        """The most leading blocks, at most `limit`, that can be taken over; needs their names.

        A group without a window needs all of them, one with a window only those that the next token can still read. The
        boundary is the last one that suits all groups.
        """
        best, names, needs = 0, holding.names, [group.before(limit) for group in self.groups]
        runs = [0] * len(self.groups)
        for count in range(1, limit + 1):
            name, suits = names[count], True
            for g, pool in enumerate(self.pools):
                runs[g] = runs[g] + 1 if pool.find(name) is not None else 0
                if runs[g] < min(needs[g], count):
                    if not self.groups[g].window:
                        return best
                    suits = False
            if suits:
                best = count
        return best

    def has_room(self, holding: Holding, hit: int, num_tokens: int, kept_free: list[int]) -> bool:
        """Whether an empty holding could take over `hit` blocks and grow to `num_tokens`.

        Args:
            kept_free: per group, blocks that have to be available then.
        """
        for group, pool, kept in zip(self.groups, self.pools, kept_free, strict=True):
            names = holding.names[hit + 1 - group.before(hit) : hit + 1]
            idle = sum(pool.reason(block) is Reason.CACHED for name in names if (block := pool.find(name)) is not None)
            fresh = max(0, group.needed(num_tokens) - len(names))
            if pool.available - idle - kept < fresh:
                return False
        return True

    def outstanding(self, holding: Holding, num_tokens: int) -> list[int]:
        """Per group, how many more blocks it takes to compute `num_tokens`, step by step."""
        held = [len(table) - slid for table, slid in zip(holding.tables, holding.slid, strict=True)]
        return [max(0, group.needed(num_tokens) - count) for group, count in zip(self.groups, held, strict=True)]

    def take_over(self, holding: Holding, hit: int) -> None:
        """Fill an empty holding with the first `hit` blocks, as found by `longest_hit`."""
        for g, (group, pool) in enumerate(zip(self.groups, self.pools, strict=True)):
            slid = hit - group.before(hit)
            found = [pool.find(name) for name in holding.names[slid + 1 : hit + 1]]
            blocks = [block for block in found if block is not None]
            assert len(blocks) == hit - slid, "a block of the hit has gone"
            for block in blocks:
                pool.share(block)
            holding.tables[g] = [-1] * slid + blocks
            holding.slid[g] = slid
        holding.named = hit

    def can_fork(self, source: Holding, num_tokens: int) -> bool:
        """Whether a holding still has all that a token at position `num_tokens` reads; those before it are computed."""
        return all(slid <= group.first_seen(num_tokens) for group, slid in zip(self.groups, source.slid, strict=True))

    def fork(self, holding: Holding, source: Holding, num_tokens: int) -> list[BlockCopy]:
        """Fill an empty holding with the first `num_tokens` positions of another, for which `can_fork` holds.

        Full blocks are shared. A last block that is not full is copied, because both will write into it: the copies have to be
        made before the next step computes. The holding knows the names of its blocks; a block is available in each group.
        """
        full, copies = num_tokens // self.block, []
        for g, (group, pool) in enumerate(zip(self.groups, self.pools, strict=True)):
            slid = group.first_seen(num_tokens)
            table = [-1] * slid + source.tables[g][slid:full]
            for block in table[slid:]:
                pool.share(block)
            if num_tokens % self.block:
                table += pool.take(1)
                copies.append(BlockCopy(g, source.tables[g][full], table[-1]))
            holding.tables[g], holding.slid[g] = table, slid
        holding.named = min(full, source.named)
        return copies

    def room(self, holding: Holding) -> int:
        """The most positions that the tables could cover if they got all blocks available."""
        return (holding.num_blocks + self.available) * self.block

    def grow(self, holding: Holding, num_tokens: int) -> None:
        """Let the tables cover `num_tokens` positions. The caller has checked that there is `room`."""
        count = -(-num_tokens // self.block) - holding.num_blocks
        if count > 0:
            for table, pool in zip(holding.tables, self.pools, strict=True):
                table += pool.take(count)

    def trim(self, holding: Holding, num_tokens: int) -> None:
        """Give back blocks behind the first `num_tokens` positions. None of them may have a name."""
        blocks = -(-num_tokens // self.block)
        if blocks < holding.num_blocks:
            for table, pool in zip(holding.tables, self.pools, strict=True):
                pool.release(reversed(table[blocks:]))
                del table[blocks:]

    def enter(self, holding: Holding, tokens: list[int], num_tokens: int) -> None:
        """Let others find the full blocks among the first `num_tokens` positions, which are computed."""
        count = num_tokens // self.block
        if count <= holding.named:
            return
        holding.own_from = min(holding.own_from, holding.named)
        self._namer.extend(holding.names, tokens, count)
        for table, pool, slid in zip(holding.tables, self.pools, holding.slid, strict=True):
            for i in range(max(holding.named, slid), count):
                pool.enter(table[i], holding.names[i + 1])
        holding.named = count

    def slide(self, holding: Holding, position: int) -> None:
        """Give back the blocks that neither a query at `position` nor a later one reads."""
        for g in self._windowed:
            first, slid = self.groups[g].first_seen(position), holding.slid[g]
            if first > slid:
                table = holding.tables[g]
                self.pools[g].release(reversed(table[slid:first]))
                table[slid:first] = [-1] * (first - slid)
                holding.slid[g] = first

    def release(self, holding: Holding, *, keep: bool) -> None:
        """Give everything back; without `keep`, nobody finds any more what the sequence may have computed, now or earlier.

        Those who share it already keep it, and so do other choices of their requests.
        """
        for table, pool, slid in zip(holding.tables, self.pools, holding.slid, strict=True):
            pool.release(reversed(table[slid:]))
            if not keep:
                for name in holding.names[holding.own_from + 1 :]:
                    pool.forget(name)
        self._empty(holding)

    def check_integrity(self, holdings: Iterable[Holding]) -> None:
        """Assert that the books of all pools agree with these holdings, which are all there are."""
        held = list(holdings)
        for holding in held:
            assert len({len(table) for table in holding.tables}) == 1, "tables of different lengths"
            for table, slid in zip(holding.tables, holding.slid, strict=True):
                assert all(block < 0 for block in table[:slid]), "a block was given back but its entry is left"
                assert all(block >= 0 for block in table[slid:]), "an entry is missing"
            assert holding.named <= holding.num_blocks
            assert holding.named < len(holding.names)
        for g, pool in enumerate(self.pools):
            pool.check_integrity(holding.tables[g][holding.slid[g] :] for holding in held)

    def _empty(self, holding: Holding) -> None:
        holding.tables = [[] for _ in self.groups]
        holding.slid = [0] * len(self.groups)
        holding.named = 0
