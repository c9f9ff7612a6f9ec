"""Selections for prompts and for single tokens."""

from collections.abc import Iterator
from functools import partial

import torch

from kernels.gpu.block_selection import select_blocks, select_for_rows
from kernels.gpu.case import Case
from kernels.sparsity import Budget

_PRODUCTS = ("score_kernel",)


def cases() -> Iterator[Case]:
    """See `Case`."""
    ints, firsts = partial(torch.empty, dtype=torch.int64, device="meta"), torch.empty(3, dtype=torch.int32, device="meta")
    budget, context = Budget(coverage=0.95, at_least=16, at_most=512, support=1.0), 100_000
    for dtype, heads, kv_heads, head_dim, block in (
        (torch.bfloat16, 32, 8, 128, 16),
        (torch.float16, 14, 2, 80, 64),
        (torch.float32, 4, 2, 64, 16),
        (torch.bfloat16, 8, 8, 256, 32),
    ):
        q = torch.empty(2000, heads + 2 * kv_heads, head_dim, dtype=dtype, device="meta")[:, :heads]
        pages = torch.empty(1000, 4, 2, kv_heads, head_dim, dtype=dtype, device="meta")
        name = f"{dtype}, {heads}/{kv_heads} heads of {head_dim}, blocks of {block}"
        run = partial(
            select_blocks,
            q,
            pages,
            1,
            ints(2, context // block),
            ints(2),
            firsts,
            scale=0.1,
            longest=1500,
            context=context,
            block=block,
            query_block=128,
            key_block=128,
            probe=64,
            budget=budget,
        )
        yield Case(f"prompts, {name}", run, () if dtype == torch.float32 else _PRODUCTS)
    table, positions = ints(2000, context // block), ints(2000)
    run_rows = partial(select_for_rows, q, pages, 1, table, positions, scale=0.1, context=context, block=block, budget=budget)
    yield Case(f"rows, {name}", run_rows, _PRODUCTS)
