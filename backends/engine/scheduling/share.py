"""How the prompt tokens of a step are divided among prompts.

The most urgent prompt gets them, which is best for all when prompts are alike. Where others with a shorter rest and no lesser
priority wait behind it, it gets half, so it always advances however many they are, and they get the other half, so that a short
prompt does not wait for long ones.
"""

from backends.engine.scheduling.sequence import Sequence
from backends.engine.scheduling.step import Chunk


def share_out(prefilling: list[Sequence], budget: int, available: int, block: int) -> list[Chunk]:
    """Divide `budget` tokens among sequences that lack some, the most urgent first, while blocks last.

    Chunks end with a prompt, with an answer that is computed again, or at the end of a block, so that blocks become complete
    early; only the most urgent one's may end within a block, when the budget does not reach the end of it.

    Args:
        prefilling: at least one sequence, in order of rank.
        budget: at least 1.
        available: blocks that tables may grow by, in each group.
        block: tokens in a block.
    """
    ends = {sequence: sequence.num_computed for sequence in prefilling}
    goals = {s: s.num_prompt if s.num_computed < s.num_prompt else len(s.tokens) for s in prefilling}

    def give(sequence: Sequence, most: int) -> None:
        nonlocal budget, available
        start, goal, covered = ends[sequence], goals[sequence], -(-ends[sequence] // block)
        end = min(goal, start + min(most, budget), (covered + available) * block)
        if end < goal and end - end % block > start:
            end -= end % block
        elif end < goal and (sequence is not first or start > first.num_computed):
            return
        budget -= end - start
        available -= max(0, -(-end // block) - covered)
        ends[sequence] = end

    first, *others = prefilling
    others.sort(key=_shortest_first)
    shorter = [s for s in others if s.priority <= first.priority and s.num_missing < first.num_missing]
    give(first, max(budget // 2, block) if shorter else budget)
    for sequence in (*shorter, first, *others):
        give(sequence, budget)
    return [Chunk(sequence, sequence.num_computed, end) for sequence, end in ends.items() if end > sequence.num_computed]


def _shortest_first(sequence: Sequence) -> tuple[int, int, int]:
    return sequence.priority, sequence.num_missing, sequence.number
