"""The comparison says yes only where the wanted ratio was reached, and shows what was not reported."""

from typing import Any

from benchmarks import report
from benchmarks.cases import CASES, FIGURES, Run

WANTED = {figure.title: figure for figure in FIGURES}


def run(scale: float, **own: Any) -> Run:
    """A run whose latencies are `scale` and whose throughput is 1 / `scale`."""
    times = {"p50": 10.0 * scale, "p95": 20.0 * scale, "p99": 30.0 * scale}
    figures = {"tok_s": 100.0 / scale, "ttft_ms": times, "itl_ms": times}
    return {case.name: figures for case in CASES} | {
        "own": {"step_host_ms": None, "gateway_rss_mb": 90.0, "ready_s": 2.0} | own
    }


def row(table: str, title: str) -> list[str]:
    line = next(line for line in table.splitlines() if line.startswith(f"| {title} "))
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_equal_servers_reach_all_but_the_shared_prefix_goal() -> None:
    reached = {title: figure.holds(figure.ratios([run(1.0)], [run(1.0)])[0]) for title, figure in WANTED.items()}
    assert [title for title, holds in reached.items() if not holds] == ["time to first token p95, c=4, 600 shared words"]


def test_latency_counts_down_and_throughput_counts_up() -> None:
    slower = report.table([run(1.2)], [run(1.0)])
    faster = report.table([run(0.4)], [run(1.0)])
    for title in WANTED:
        assert row(slower, title)[-1] == "no"
        assert row(faster, title)[-1] == "yes"


def test_ratios_are_of_neighbours_and_their_median_counts() -> None:
    table = report.table([run(1.0), run(2.0), run(9.0)], [run(1.0), run(2.0), run(3.0)])
    assert row(table, "inter-token latency p50, c=1")[3:5] == ["1.00", "1.00 to 3.00"]


def test_a_figure_that_was_not_reported_is_no_success() -> None:
    table = report.table([run(1.0)], [run(1.0)])
    work = row(table, "Python work per batch step, 8 slots")
    assert (work[1], work[-1]) == ("not reported", "no")
    assert row(table, "gateway process, idle")[-1] == "yes"
