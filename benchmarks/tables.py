"""Writes what several servers were measured to do, and what was wanted of Baton, as Markdown tables."""

from collections.abc import Iterable, Sequence

from benchmarks.cases import OwnFigure, median
from benchmarks.goals import Column, Goal, Round
from benchmarks.report import aligned

NOT_MEASURED = "not measured"


def figures(columns: Iterable[Column], servers: Sequence[str], rounds: list[Round]) -> str:
    """Write a table of medians over the repetitions, with the smallest and the largest."""
    rows: list[tuple[str, ...]] = [("", *servers)]
    for column in columns:
        cells = []
        for server in servers:
            values = column.values(rounds, server)
            cells.append(f"{_number(median(values))} ({_spread(values)})" if values else NOT_MEASURED)
        rows.append((f"{column.title}, {column.unit}", *cells))
    return aligned(rows)


def goals(wanted: Iterable[Goal], rounds: list[Round], own: Iterable[tuple[OwnFigure, float]] = ()) -> str:
    """Write what was wanted. A figure that was not measured is not reached.

    Args:
        own: figures that were taken once, outside of the rounds, with their values.
    """
    rows: list[tuple[str, ...]] = [("", "Baton", "of single repetitions", "wanted", "")]
    for goal in wanted:
        bound = f"at most {goal.at_most:g}" if goal.at_most is not None else f"at least {goal.at_least:g}"
        if values := goal.values(rounds):
            middle = median(values)
            holds = "yes" if goal.holds(middle) else "no"
            rows.append((goal.title, f"{_number(middle)} {goal.unit}", _spread(values), f"{bound} {goal.unit}", holds))
        else:
            rows.append((goal.title, NOT_MEASURED, "", f"{bound} {goal.unit}", "no"))
    for figure, value in own:
        holds = "yes" if value <= figure.at_most else "no"
        rows.append((figure.title, f"{_number(value)} {figure.unit}", "", f"at most {figure.at_most:g} {figure.unit}", holds))
    return aligned(rows)


def with_absences(text: str, absent: dict[str, str]) -> str:
    """Add why servers were not measured, by their names, below the tables."""
    return "\n".join([text, *(f"\n{name} was not measured: {reason}" for name, reason in absent.items())])


def _spread(values: list[float]) -> str:
    return f"{_number(min(values))}..{_number(max(values))}"


def _number(value: float) -> str:
    """Show three digits or a little more."""
    if abs(value) >= 100:
        return f"{value:.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"
