"""A KV memory that remembers what was written where, so that a wrong reuse is seen at once."""

from dataclasses import dataclass, field


@dataclass
class RecordingMemory:
    """Implements `edge.scheduler.KvMemory`: per slot the tokens at positions 0, 1, 2, ... and whose they are.

    `window` > 0 imitates a sliding-window cache that keeps only the last positions; `partial` False a recurrent model.
    """

    partial: bool = True
    window: int = 0
    slots: dict[int, list[tuple[str, int]]] = field(default_factory=dict)

    def reusable(self, slot: int, end: int) -> bool:
        return not self.window or len(self.slots.get(slot, ())) - end < self.window

    def copy(self, source: int, target: int, end: int) -> None:
        assert not self.slots.get(target), "copied into a slot that is not empty"
        assert self.partial or end == len(self.slots[source])
        self.slots[target] = self.slots[source][:end]

    def truncate(self, slot: int, end: int) -> bool:
        if not self.partial:
            return False
        del self.slots[slot][end:]
        return True

    def clear(self, slot: int) -> None:
        self.slots.pop(slot, None)

    def write(self, slot: int, start: int, tenant: str, tokens: list[int]) -> None:
        held = self.slots.setdefault(slot, [])
        assert len(held) == start, f"slot {slot} holds {len(held)} positions, written at {start}"
        held += [(tenant, token) for token in tokens]
