"""Turns the figures of gateways into tables."""

from typing import Any

from benchmarks.cases import median
from benchmarks.gateway_cases import COLUMNS, GOALS, MEMORY_GOALS, SERVERS, Round
from benchmarks.report import aligned

NOT_MEASURED = "not measured"


def tables(rounds: list[Round], memory: dict[str, Any], absent: dict[str, str]) -> str:
    """Write the figures of every server, then what was wanted of Baton and whether it was reached.

    Args:
        absent: why a server was not measured, by its name.
    """
    text = f"{figures(rounds)}\n\n{goals(rounds, memory)}"
    return "\n".join([text, *(f"\n{name} was not measured: {reason}" for name, reason in absent.items())])


def figures(rounds: list[Round]) -> str:
    """Write a table of medians over the repetitions, with the smallest and the largest."""
    rows: list[tuple[str, ...]] = [("", *SERVERS)]
    for column in COLUMNS:
        cells = []
        for server in SERVERS:
            values = [column.pick(measured, server) for measured in rounds if server in measured]
            cells.append(f"{_number(median(values))} ({_spread(values)})" if values else NOT_MEASURED)
        rows.append((f"{column.title}, {column.unit}", *cells))
    return aligned(rows)


def goals(rounds: list[Round], memory: dict[str, Any]) -> str:
    """Write what was wanted. A figure that was not measured is not reached."""
    rows: list[tuple[str, ...]] = [("", "Baton", "of single repetitions", "wanted", "")]
    for goal in GOALS:
        bound = f"at most {goal.at_most:g}" if goal.at_most is not None else f"at least {goal.at_least:g}"
        if values := goal.values(rounds):
            middle = median(values)
            holds = "yes" if goal.holds(middle) else "no"
            rows.append((goal.title, f"{_number(middle)} {goal.unit}", _spread(values), f"{bound} {goal.unit}", holds))
        else:
            rows.append((goal.title, NOT_MEASURED, "", f"{bound} {goal.unit}", "no"))
    for own in MEMORY_GOALS:
        value = float(memory[own.key])
        holds = "yes" if value <= own.at_most else "no"
        rows.append((own.title, f"{_number(value)} {own.unit}", "", f"at most {own.at_most:g} {own.unit}", holds))
    return aligned(rows)


def _spread(values: list[float]) -> str:
    return f"{_number(min(values))}..{_number(max(values))}"


def _number(value: float) -> str:
    """Show three digits or a little more."""
    if abs(value) >= 100:
        return f"{value:.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"
