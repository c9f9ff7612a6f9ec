"""The tables of gateways: ratios within a repetition, medians over all, and nothing that was not measured counts as reached."""

from typing import Any

import pytest

from benchmarks import gateway_report
from benchmarks.gateway_cases import BATON, DIRECT, GOALS, LITELLM, MANY, MEMORY_GOALS, ONE, SERVERS, VLLM_ROUTER
from benchmarks.goals import Round

MEMORY = {
    "rss_per_stream_kb": 30.0,
    "rss_per_abort_kb": 0.0,
    "in_flight_after": 0.0,
    "health_p99_open_ms": 5.0,
    "health_p99_aborts_ms": 5.0,
}
GOOD = {DIRECT: 1.0, BATON: 1.4, LITELLM: 21.0, VLLM_ROUTER: 1.2}
"""Milliseconds of a request; everything else follows."""


def figures(ms: float) -> dict[str, Any]:
    return {"e2e_ms": {"p50": ms, "p95": ms, "p99": ms}, "rps": 5600.0 / ms, "server_cpu_us": 300.0}


def measured(**changes: float) -> Round:
    """One repetition. LiteLLM is so slow that its rates are far below, as they are in life."""
    times = GOOD | {name.replace("_", "-"): ms for name, ms in changes.items()}
    rounds = {
        name: {load: figures(ms) for load in ("one user", "32 users", "one stream", "16 streams")} for name, ms in times.items()
    }
    for load in ("32 users", "16 streams"):
        rounds[LITELLM][load]["rps"] /= 10
    return rounds


def rows(table: str) -> dict[str, list[str]]:
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]
    return {first: rest for first, *rest in cells}


def test_what_the_goals_ask_for_is_reached_and_no_less() -> None:
    reached = rows(gateway_report.goals([measured()], MEMORY))
    missed = rows(gateway_report.goals([measured(Baton=20.0)], dict.fromkeys(MEMORY, 1000.0)))
    titles = [each.title for each in (*GOALS, *MEMORY_GOALS)]
    assert {title: reached[title][-1] for title in titles} == dict.fromkeys(titles, "yes")
    assert {title: missed[title][-1] for title in titles} == dict.fromkeys(titles, "no")


def test_added_time_is_what_remains_after_the_direct_time() -> None:
    row = rows(gateway_report.goals([measured()], MEMORY))["LiteLLM adds that many times as much"]
    assert row[0] == "50.0 x"  # (21 - 1) / (1.4 - 1)


def test_the_middle_repetition_counts_and_the_others_are_shown() -> None:
    table = rows(gateway_report.goals([measured(Baton=1.2), measured(Baton=1.6), measured(Baton=1.9)], MEMORY))
    assert table["added p50, c=1"] == ["0.60 ms", "0.20..0.90", "at most 0.5 ms", "no"]


def test_a_peer_that_is_not_there_is_named_and_is_no_success() -> None:
    without = measured()
    del without[VLLM_ROUTER]
    text = gateway_report.tables([without], MEMORY, {VLLM_ROUTER: "pip found nothing"})
    assert rows(text)["requests, c=32, by vllm-router's"] == ["not measured", "", "at least 0.6 x", "no"]
    assert text.endswith("vllm-router was not measured: pip found nothing")
    columns = dict(zip(SERVERS, rows(text)["c=32, req/s"], strict=True))
    assert columns[VLLM_ROUTER] == "not measured"
    assert columns[BATON] == "4000 (4000..4000)"


def test_noise_that_leaves_no_added_time_does_not_divide_by_it() -> None:
    assert rows(gateway_report.goals([measured(Baton=0.9)], MEMORY))["LiteLLM adds that many times as much"][-1] == "yes"


@pytest.mark.parametrize(("quick", "requests"), [(False, MANY.requests), (True, MANY.requests // 4)])
def test_a_quick_run_sends_a_quarter(quick: bool, requests: int) -> None:
    assert MANY.count(BATON, quick) == requests
    assert MANY.count(LITELLM, quick) < requests
    assert ONE.count(BATON, quick) >= ONE.users
