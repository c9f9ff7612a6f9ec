"""What a sequence that is about to be admitted can get from those that run: a fork of a finished prompt, or a promise of one.

Blocks that are computed already are found by name in the cache; this is about the rest.
"""

from collections.abc import Iterable

from backends.engine.kv.manager import BlockManager
from backends.engine.kv.names import common_blocks
from backends.engine.scheduling.sequence import Sequence


def fork_source(sequence: Sequence, running: Iterable[Sequence], manager: BlockManager) -> Sequence | None:
    """Find a choice of the same request that has all of the prompt but its last token in the cache.

    A sequence that has generated tokens (it was preempted) gets none: the decode weights may have computed them.
    """
    wanted = sequence.num_prompt - 1
    for other in running if not sequence.num_generated else ():
        if other.num_computed >= wanted > 0 and _are_choices(other, sequence) and manager.can_fork(other.holding, wanted):
            return other
    return None


def best_promise(sequence: Sequence, running: Iterable[Sequence], block: int, wanted: int) -> tuple[Sequence | None, int]:
    """Find who will have most of the `wanted` leading tokens in the cache once its own prompt is computed, and how many.

    Both must know the names of their full blocks.
    """
    best, most = None, 0
    names = sequence.holding.names[: wanted // block + 1]
    for other in running:
        promised = common_blocks(other.holding.names, names) * block
        if not sequence.num_generated and _are_choices(other, sequence):
            promised = wanted
        if promised > max(most, other.num_computed):
            best, most = other, promised
    return best, most


def _are_choices(a: Sequence, b: Sequence) -> bool:
    """Whether two sequences are choices of one request with the same prompt."""
    return (
        a.request == b.request
        and a.num_prompt == b.num_prompt
        and a.tenant == b.tenant
        and a.adapter == b.adapter
        and a.tokens[: a.num_prompt] == b.tokens[: b.num_prompt]
    )
