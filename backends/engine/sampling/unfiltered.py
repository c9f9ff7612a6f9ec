"""Drawing from the whole softmax: first a block by its mass, then a token within it, instead of a sum over the vocabulary."""

import torch
from torch import Tensor

from backends.engine.sampling.ranking import in_blocks
from backends.engine.sampling.settings import Settings

_BLOCK = 256


def draw_unfiltered(logits: Tensor, best: Tensor, settings: Settings) -> Tensor:
    """Draw a token for each row: the first, in the order of ids, at which the summed probabilities exceed the uniform number.

    Args:
        logits: [rows, vocab] float32, contiguous; overwritten.
        best: [rows] float32, the largest of each, finite.

    Returns: [rows] int64.
    """
    blocks = in_blocks(logits, _BLOCK)
    blocks.sub_(best.view(-1, 1, 1)).div_(settings.temperature.float().unsqueeze(1)).exp_()
    masses = blocks.sum(-1).double()
    sums = masses.cumsum(-1)
    goal = settings.uniform * sums[:, -1:]
    block = (sums <= goal).sum(-1, keepdim=True)
    goal -= sums.gather(1, block) - masses.gather(1, block)
    inside = blocks[torch.arange(len(logits), device=logits.device), block.squeeze(1)].double().cumsum(-1)
    # The block's own sum and this one are rounded differently: the goal may lie at the end, where no weight is left.
    last = (inside < inside[:, -1:]).sum(-1)
    return block.squeeze(1) * _BLOCK + (inside <= goal).sum(-1).minimum(last)
