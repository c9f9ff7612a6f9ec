"""The classes in which requests queue, best first."""

from typing import Literal

Priority = Literal["interactive", "standard", "batch"]
PRIORITIES: tuple[Priority, ...] = ("interactive", "standard", "batch")
