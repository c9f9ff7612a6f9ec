"""Layers that see equally far share block tables; what a window means for the blocks of such a group.

A query at position t sees the keys at positions `t - window < p <= t`; a window of 0 sees all. Plain arithmetic.
"""

import sys
from dataclasses import dataclass

from backends.engine.shape import ModelShape


@dataclass(frozen=True, slots=True)
class LayerGroup:
    """The layers, by number, whose queries see `window` keys (0: all)."""

    window: int
    layers: tuple[int, ...]


def layer_groups(shape: ModelShape) -> tuple[LayerGroup, ...]:
    """Sort the layers of a model by window, full attention first. A window as long as the context is none."""
    layers: dict[int, list[int]] = {}
    for number, layer in enumerate(shape.layers):
        window = layer.window if layer.window < shape.context else 0
        layers.setdefault(window, []).append(number)
    return tuple(LayerGroup(window, tuple(layers[window])) for window in sorted(layers))


@dataclass(frozen=True, slots=True, kw_only=True)
class KvGroup:
    """The blocks of one group of layers.

    Args:
        window: keys that a query sees, its own included; 0 is all of them.
        blocks: size of the pool, at least 1.
        block: tokens in a block, the same in all groups of a model.
    """

    window: int = 0
    blocks: int
    block: int

    def first_seen(self, position: int) -> int:
        """Index, in a sequence's table, of the oldest block that a query at `position` reads."""
        return max(0, position - self.window + 1) // self.block if self.window else 0

    def needed(self, num_tokens: int) -> int:
        """The most blocks that a sequence of `num_tokens` holds at once when its tokens are computed block by block."""
        blocks = -(-num_tokens // self.block)
        return min(blocks, -(-(self.window - 1) // self.block) + 1) if self.window else blocks

    def before(self, count: int) -> int:
        """How many of the first `count` blocks of a sequence the token behind them, and all later ones, can still read."""
        return count - self.first_seen(count * self.block)

    @property
    def max_tokens(self) -> int:
        """The longest sequence that fits when it has the pool to itself; `sys.maxsize` if there is no such bound."""
        return sys.maxsize if self.window and self.blocks >= self.needed(sys.maxsize) else self.blocks * self.block
