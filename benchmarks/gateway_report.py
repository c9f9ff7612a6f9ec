"""Turns the figures of gateways into tables."""

from typing import Any

from benchmarks import tables as write
from benchmarks.gateway_cases import COLUMNS, GOALS, MEMORY_GOALS, SERVERS
from benchmarks.goals import Round


def tables(rounds: list[Round], memory: dict[str, Any], absent: dict[str, str]) -> str:
    """Write the figures of every server, then what was wanted of Baton and whether it was reached.

    Args:
        absent: why a server was not measured, by its name.
    """
    return write.with_absences(f"{write.figures(COLUMNS, SERVERS, rounds)}\n\n{goals(rounds, memory)}", absent)


def goals(rounds: list[Round], memory: dict[str, Any]) -> str:
    """Write what was wanted of the rounds and of memory."""
    return write.goals(GOALS, rounds, [(own, float(memory[own.key])) for own in MEMORY_GOALS])
