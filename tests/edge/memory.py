"""A KV memory that remembers what was written where, so that a wrong reuse is seen at once."""

from dataclasses import dataclass, field

Held = list[tuple[str, int]]


@dataclass
class RecordingMemory:
    """Implements `edge.scheduler.KvMemory`: per slot the tokens at positions 0, 1, 2, ... and whose they are.

    `window` > 0 imitates a sliding-window cache that keeps only the last positions; `partial` False a recurrent model.
    """

    partial: bool = True
    window: int = 0
    restores_fail: bool = False
    unified: bool = True
    slots: dict[int, Held] = field(default_factory=dict)
    oldest: dict[int, int] = field(default_factory=dict)  # the first position that the window has not lost

    def reusable(self, slot: int, end: int) -> bool:
        return not self.window or self.oldest[slot] <= max(0, end - self.window)

    def copy(self, source: int, target: int, end: int) -> bool:
        assert not self.slots.get(target), "copied into a slot that is not empty"
        assert self.partial or end == len(self.slots[source])
        if self.restores_fail and not self.unified:
            return False
        self.slots[target], self.oldest[target] = self.slots[source][:end], self.oldest[source]
        return True

    def truncate(self, slot: int, end: int) -> bool:
        if not self.partial:
            return False
        del self.slots[slot][end:]
        return True

    def clear(self, slot: int) -> None:
        self.slots.pop(slot, None)

    def save(self, slot: int) -> tuple[tuple[Held, int], int]:
        return (list(self.slots[slot]), self.oldest[slot]), len(self.slots[slot])

    def restore(self, slot: int, data: tuple[Held, int]) -> bool:
        assert not self.slots.get(slot), "restored into a slot that is not empty"
        if self.restores_fail:
            return False
        self.slots[slot], self.oldest[slot] = list(data[0]), data[1]
        return True

    def write(self, slot: int, start: int, tenant: str, tokens: list[int]) -> None:
        held = self.slots.setdefault(slot, [])
        assert len(held) == start, f"slot {slot} holds {len(held)} positions, written at {start}"
        held += [(tenant, token) for token in tokens]
        lost = len(held) - self.window if self.window else 0
        self.oldest[slot] = max(lost, self.oldest.get(slot, 0) if start else 0)
