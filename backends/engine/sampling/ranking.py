"""The largest logits of each row, exactly, without looking at a vocabulary element by element.

A row is cut into blocks. The n largest elements of a row lie in the n blocks with the largest maxima, so after one pass for the
maxima, which every processor does at the speed of its memory, a few thousand elements are left to choose among. Ties go to the
lower id: elements and blocks are compared by one integer made of value and id, which no two of them share.
"""

import torch
from torch import Tensor
from torch.nn.functional import pad

_BLOCK = 64
_LOW_WORD = 2**32 - 1


def largest(logits: Tensor) -> tuple[Tensor, Tensor]:
    """Find the largest logit of each row: values [rows] float32, ids [rows] int64. NaN counts as the largest.

    Args:
        logits: [rows, vocab] float32.
    """
    blocks = in_blocks(logits, _BLOCK)
    block = blocks.amax(-1).argmax(-1)  # argmax takes the first of several
    inside = blocks[torch.arange(len(logits), device=logits.device), block]
    values, place = inside.amax(-1), inside.argmax(-1)
    return values, block * _BLOCK + place


def ranked(logits: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Find the `count` largest logits of each row (all, where it has fewer), largest first and equal ones by id.

    Args:
        logits: [rows, vocab] float32.

    Returns: values [rows, count] float32 and ids [rows, count] int64.
    """
    count = min(count, logits.shape[1])
    blocks, device = in_blocks(logits, _BLOCK), logits.device
    which = torch.arange(blocks.shape[1], device=device).expand(len(logits), -1)
    if count < blocks.shape[1]:
        which = _places(_keys(blocks.amax(-1), which).topk(count, sorted=False).values)
    values = blocks[torch.arange(len(logits), device=device).unsqueeze(1), which].flatten(1)
    ids = (which.unsqueeze(-1) * _BLOCK + torch.arange(_BLOCK, device=device)).flatten(1)
    chosen = _places(_keys(values, ids).topk(count).values)
    return logits.gather(1, chosen), chosen


def in_blocks(logits: Tensor, size: int) -> Tensor:
    """Cut rows into blocks, [rows, blocks, size]: a view, or a copy filled up with -inf where the last block is not full."""
    rows, vocab = logits.shape
    missing = -vocab % size
    padded = pad(logits, (0, missing), value=-torch.inf) if missing else logits
    return padded.view(rows, (vocab + missing) // size, size)


def _keys(values: Tensor, places: Tensor) -> Tensor:
    """One int64 for each element, larger for larger values and, among equal ones, for lower places."""
    bits = (values + 0.0).view(torch.int32).to(torch.int64)  # -0.0 + 0.0 is 0.0, which it is equal to
    ordered = bits ^ ((bits >> 31) & 0x7FFFFFFF)  # negative floats are ordered the other way round
    return (ordered << 32) | (_LOW_WORD - places)


def _places(keys: Tensor) -> Tensor:
    return _LOW_WORD - (keys & _LOW_WORD)
