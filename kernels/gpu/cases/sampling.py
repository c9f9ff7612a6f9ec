"""The vocabularies of three families of models."""

from collections.abc import Iterator
from functools import partial

import torch

from kernels.gpu.case import Case
from kernels.gpu.sampling import choose, greedy, score


def cases() -> Iterator[Case]:
    """See `Case`."""
    empty = partial(torch.empty, device="meta")
    for vocab in (49152, 151936, 262144):
        logits, numbers, tokens = empty(4, vocab), empty(4, dtype=torch.float64), empty(4, dtype=torch.int64)
        yield Case(f"choose of {vocab}", partial(choose, logits, numbers, tokens, numbers, numbers, numbers))
    yield Case(f"greedy of {vocab}", partial(greedy, logits))
    yield Case(f"score of {vocab}", partial(score, logits, tokens))
