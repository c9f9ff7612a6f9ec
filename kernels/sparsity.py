"""Which parts of a long context a query needs to read: what a selection is, and its definition in plain torch.

Keys are judged in blocks. Of each block of the cache the smallest and the largest number of every dimension is kept; the
larger of the two products with a query's number bounds what any key of the block can give (Tang et al. 2024, Quest, section
3.3). Of the bounds a distribution is made, and the fewest blocks are read that hold a share of it (Lai et al. 2025,
FlexPrefill, and Lin et al. 2025, Twilight): a fixed number would be too much for some heads and too little for others.
"""

import math
from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True)
class Selection:
    """Blocks of keys to read.

    Args:
        blocks: [chunks, query_blocks, kv_heads, most] int32: numbers of blocks, rising; -1 behind the last. Block n is of the
            keys at positions from n * key_block on.
        query_block: queries of a chunk that share a row of `blocks`, counted from the chunk's first.
        key_block: keys in a block.
    """

    blocks: torch.Tensor
    query_block: int
    key_block: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """How much is read.

    Args:
        coverage: the share of the distribution that is read, 0 to 1.
        at_least, at_most: blocks that are read, those always read among them.
        support: raises `at_least` to so many times e^entropy, the number of blocks that the distribution is about as wide as.
            It never lowers it: a head of low entropy mostly looks at the start of the text, and still needs the rest at times.
    """

    coverage: float
    at_least: int
    at_most: int
    support: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.coverage <= 1:
            raise ValueError(f"a coverage is from 0 to 1, not {self.coverage}")
        if not 1 <= self.at_least <= self.at_most:
            raise ValueError(f"at least {self.at_least} and at most {self.at_most} blocks cannot be read")
        if not 0 <= self.support < math.inf:
            raise ValueError(f"a multiple of the support is not negative, unlike {self.support}")


def always_read(first: int, last: int, key_block: int) -> int:
    """The first of the newest blocks, which are always read: the last two, and all that hold one of the queries themselves.

    Args:
        first, last: positions of a query block's ends, both included.
    """
    return max(0, min(last // key_block - 1, first // key_block))


def always_read_at_most(query_block: int, key_block: int) -> int:
    """How many blocks are always read, block 0 among them, wherever a query block lies."""
    return 1 + max(2, (query_block + key_block - 2) // key_block + 1)


def bounds(q: torch.Tensor, low: torch.Tensor, high: torch.Tensor) -> torch.Tensor:
    """Bound the products of queries with the keys of pages, on average over the queries and the heads of a group.

    Args:
        q: [probe, heads, head_dim] float32.
        low, high: [pages, kv_heads, head_dim] float32: the smallest and the largest of each page's numbers.

    Returns:
        [kv_heads, pages].
    """
    grouped = q.view(q.shape[0], low.shape[1], -1, 1, q.shape[2])
    by_page = torch.maximum(grouped * low.transpose(0, 1)[None, :, None], grouped * high.transpose(0, 1)[None, :, None])
    return by_page.sum(-1).mean((0, 2))


def choose(scores: torch.Tensor, first: int, last: int, key_block: int, budget: Budget) -> list[int]:
    """Choose the blocks that the queries at `first` to `last` read, for one head of keys.

    Args:
        scores: [blocks] float32, at least of all before `always_read`: logarithms of what they weigh.
    """
    newest = always_read(first, last, key_block)
    end = last // key_block + 1
    weights = torch.softmax(scores[:newest], 0)
    forced = {0, *range(newest, end)}
    entropy = -float((weights * weights.clamp_min(1e-30).log()).sum())
    order = sorted(set(range(newest)) - forced, key=lambda block: (-float(weights[block]), block))
    floor = max(budget.at_least, math.ceil(budget.support * math.exp(entropy)) if newest else 0)
    kept, mass = sorted(forced), float(weights[:1].sum())
    for block in order:
        if (mass >= budget.coverage < 1 and len(kept) >= floor) or len(kept) >= budget.at_most:
            break
        kept.append(block)
        mass += float(weights[block])
    return sorted(kept)


def attend_chosen(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    visible: torch.Tensor,
    *,
    scale: float,
    softcap: float = 0.0,
    sinks: torch.Tensor | None = None,
) -> torch.Tensor:
    """Dense attention with grouped heads, in which everything that is not visible is hidden.

    Args:
        q: [rows, heads, head_dim] float32, contiguous.
        k, v: [keys, kv_heads, head_dim] float32.
        visible: [rows, kv_heads, keys] bool.
        sinks: [heads] float32: the logarithm of a weight that goes nowhere.

    Returns:
        [rows, heads, head_dim] float32.
    """
    grouped = q.view(len(q), k.shape[1], -1, q.shape[2])
    scores = torch.einsum("rkgd,tkd->rkgt", grouped, k) * scale
    if softcap:
        scores = softcap * torch.tanh(scores / softcap)
    scores = scores.masked_fill(~visible[:, :, None], -torch.inf)
    if sinks is not None:
        lost = sinks.view(1, k.shape[1], -1, 1).expand(*scores.shape[:3], 1)
        scores = torch.cat([scores, lost], -1)
    weights = torch.softmax(scores, -1)[..., : k.shape[0]]
    return torch.einsum("rkgt,tkd->rkgd", weights, v).flatten(1, 2)
