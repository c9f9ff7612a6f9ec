"""How each operator is cut and pipelined, by GPU and shape: measured, or a sound guess where nobody has measured yet.

`tuned/OPERATOR.json` holds entries in order; the first whose conditions all hold is taken. A condition is a range of an
integer, both ends included: of `capability`, or of a number that the operator gives. The last entry has no conditions.
"""

from collections.abc import Collection, Sequence
from functools import cache
from pathlib import Path

import msgspec
import torch

from kernels.gpu.launch import Config, capability

_ANY = 1 << 31
_FOLDER = Path(__file__).parent / "tuned"


class Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One line of a table. `source` says where the figures come from."""

    source: str
    sizes: dict[str, int]
    num_warps: int
    num_stages: int
    when: dict[str, tuple[int, int]] = {}

    def holds(self, shape: dict[str, int]) -> bool:
        """Whether all conditions hold."""
        return all(low <= shape[name] <= high for name, (low, high) in self.when.items())


@cache
def table(operator: str) -> tuple[Entry, ...]:
    """Read an operator's entries."""
    return msgspec.json.decode((_FOLDER / f"{operator}.json").read_bytes(), type=tuple[Entry, ...])


def tuned(operator: str, device: torch.device, **shape: int) -> Config:
    """Choose the sizes for one launch.

    Args:
        shape: the numbers that the operator's conditions are about.
    """
    return _config(operator, capability(device), **shape)


def entry_for(operator: str, **shape: int) -> int:
    """Which entry is taken, by its place in the table; `shape` has the capability too."""
    return next(place for place, entry in enumerate(table(operator)) if entry.holds(shape))


def tables() -> list[str]:
    """The operators that have a table."""
    return sorted(file.stem for file in _FOLDER.glob("*.json"))


def taken() -> frozenset[tuple[str, int]]:
    """The entries that were asked for since this process began, by operator and place."""
    return frozenset(_taken)


def untaken(asked: Collection[tuple[str, int]], targets: Sequence[int]) -> list[str]:
    """Entries for these capabilities that are not among those asked for: it cannot be said that they compile.

    What only the interpreter or other GPUs would take does not count.
    """
    found = []
    for operator in tables():
        by_target = any("capability" in entry.when for entry in table(operator))
        for place, entry in enumerate(table(operator)):
            low, high = entry.when.get("capability", (0, 0 if by_target and not entry.when else _ANY))
            if (operator, place) not in asked and any(low <= target <= high for target in targets):
                found.append(f"entry {place} of {operator}")
    return found


_taken: set[tuple[str, int]] = set()


@cache
def _config(operator: str, capability: int, **shape: int) -> Config:
    entries, known = table(operator), shape | {"capability": capability}
    place = entry_for(operator, **known)
    _taken.add((operator, place))
    return Config(entries[place].sizes, entries[place].num_warps, entries[place].num_stages)
