"""Keys and values as what they depend on, so that a wrong reuse is seen at once."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from backends.engine.kv.blocks import Reason
from backends.engine.scheduling.scheduler import Scheduler
from backends.engine.scheduling.sequence import Sequence
from backends.engine.scheduling.step import Step


@dataclass(frozen=True)
class Entry:
    """Keys and values of one position: of which whole prefix, by which weights, computed for whom."""

    prefix: int
    producer: str
    author: Sequence


@dataclass
class Oracle:
    """Carries out steps on modelled blocks and asserts that every query finds the keys of its own history in its window."""

    scheduler: Scheduler
    strict: bool
    broken: set[Sequence] = field(default_factory=set)
    computed: int = 0  # tokens, drafts included
    _prefixes: dict[tuple[object, ...], int] = field(default_factory=dict)
    _blocks: dict[tuple[int, int, int], Entry] = field(default_factory=dict)  # by group, block, offset
    _lives: dict[Sequence, tuple[int, int, set[Sequence]]] = field(default_factory=dict)

    def run(self, step: Step) -> None:
        """Make the copies of a step, write all it computes, then read all it reads."""
        self._poison()
        self._copy(step)
        ranges = [(c.sequence, c.start, c.sequence.tokens[: c.end], "p") for c in step.prefills]
        ranges += [(c.sequence, c.start, c.sequence.tokens[: c.end], "d") for c in step.replays]
        ranges += [(s, s.num_computed, s.tokens + s.draft, "d") for s in step.decodes]
        for sequence in self.scheduler.running:
            self._begin(sequence, sequence.num_computed)
        written: set[tuple[int, int]] = set()
        for sequence, start, tokens, producer in ranges:
            assert start == sequence.num_computed
            self.computed += len(tokens) - start
            blocks = self._write(sequence, start, tokens, producer)
            assert not blocks & written, "two sequences write into one block"
            written |= blocks
        for sequence, start, tokens, _ in ranges:
            self._read(sequence, start, tokens)

    def break_down(self, sequence: Sequence) -> None:
        """What this sequence computed is not to be trusted from now on."""
        self.broken.add(sequence)

    def _poison(self) -> None:
        for g, pool in enumerate(self.scheduler.manager.pools):
            for block in range(pool.size):
                if pool.reason(block) is Reason.FREE:
                    for offset in range(self.scheduler.manager.block):
                        self._blocks.pop((g, block, offset), None)

    def _copy(self, step: Step) -> None:
        sources = {(copy.group, copy.source) for copy in step.copies}
        targets = {(copy.group, copy.target) for copy in step.copies}
        assert len(targets) == len(step.copies)
        assert not targets & sources, "a block is copied to and from"
        for copy in step.copies:
            for offset in range(self.scheduler.manager.block):
                entry = self._blocks.get((copy.group, copy.source, offset))
                if entry:
                    self._blocks[copy.group, copy.target, offset] = entry

    def _begin(self, sequence: Sequence, start: int) -> None:
        life = self._lives.get(sequence)
        if life is None or life[0] != sequence.admissions:
            assert not (sequence.all_logits and start), "logits of all prompt tokens are wanted, but some are not computed"
            siblings = [s for s in self.scheduler.running if s.request == sequence.request and s in self._lives]
            # What a choice shared before somebody broke, it may give to others of its request afterwards.
            broken = min([set(self.broken), *(self._lives[s][2] for s in siblings)], key=len)
            self._lives[sequence] = sequence.admissions, start, broken

    def _write(self, sequence: Sequence, start: int, tokens: list[int], producer: str) -> set[tuple[int, int]]:
        size, blocks = self.scheduler.manager.block, set()
        for position, prefix in enumerate(self._ids(sequence, tokens)):
            if position < start:
                continue
            for g, table in enumerate(sequence.holding.tables):
                block = table[position // size]
                assert block >= 0, "written into a block that was given back"
                self._blocks[g, block, position % size] = Entry(prefix, producer, sequence)
                blocks.add((g, block))
        return blocks

    def _read(self, sequence: Sequence, start: int, tokens: list[int]) -> None:
        size, (_, taken, broken) = self.scheduler.manager.block, self._lives[sequence]
        ids = list(self._ids(sequence, tokens))
        for g, group in enumerate(self.scheduler.manager.groups):
            oldest = max(0, start - group.window + 1) if group.window else 0
            for position in range(oldest, len(tokens)):
                block = sequence.holding.tables[g][position // size]
                assert block >= 0, "a block within the window was given back"
                entry = self._blocks.get((g, block, position % size))
                assert entry, "read what nobody wrote"
                assert entry.prefix == ids[position], "read the keys of another history"
                if self.strict:
                    assert entry.producer == ("p" if position < sequence.num_prompt else "d"), "computed by the wrong weights"
                if position < taken:
                    assert entry.author not in broken, "shared what a broken sequence computed"

    def _ids(self, sequence: Sequence, tokens: list[int]) -> Iterator[int]:
        prefix: object = (sequence.tenant, sequence.adapter)
        for token in tokens:
            prefix = self._prefixes.setdefault((prefix, token), len(self._prefixes))
            assert isinstance(prefix, int)
            yield prefix
