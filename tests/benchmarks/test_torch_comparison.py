"""The tables of the torch engine: ratios to each peer, and nothing that was not measured counts as reached."""

from typing import Any

from benchmarks import tables
from benchmarks.goals import Round
from benchmarks.torch_cases import (
    BATON,
    COLUMNS,
    COPY,
    GOALS,
    INTERRUPTED,
    LLAMA_SERVER,
    LOADS,
    NO_DRAFTS,
    OWN,
    SERVERS,
    SIXTEEN,
    VLLM,
    WASTE,
)

GOOD = {BATON: 1.0, NO_DRAFTS: 1.0, LLAMA_SERVER: 4.0, VLLM: 3.0}
"""How slow each server is."""


def figures(slowness: float) -> dict[str, Any]:
    times = {"p50": 10.0 * slowness, "p95": 20.0 * slowness, "p99": 30.0 * slowness}
    return {"tok_s": 100.0 / slowness, "ttft_ms": times, "itl_ms": times, "wall_s": 10.0, "prompts": 5}


def measured(waste: float = 2.0, **changes: float) -> Round:
    """One repetition, in which Baton is faster than it needs to be."""
    slowness = GOOD | {{"llama": LLAMA_SERVER, "vllm": VLLM, "baton": BATON}[name]: value for name, value in changes.items()}
    each: Round = {
        name: {load.name: figures(slow) for load in LOADS if name in load.servers}
        | {OWN: {"ready_s": 4.0, "rss_mb": 900.0}, INTERRUPTED: figures(slow)}
        for name, slow in slowness.items()
    }
    each[BATON]["the same 900 words"]["ttft_ms"] = {"p50": each[BATON]["900 words"]["ttft_ms"]["p50"] / 20}
    each[BATON][COPY.name]["tok_s"] *= 2.0
    each[BATON][SIXTEEN.name][WASTE] = {"mean": waste, "max": waste}
    each[BATON][OWN]["weights_mb"] = {"prefill": 212.0, "decode": 66.0, "words": 32.0}
    return each


def rows(table: str) -> dict[str, list[str]]:
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]
    return {first: rest for first, *rest in cells}


def reached(*rounds: Round) -> dict[str, str]:
    table = rows(tables.goals(GOALS, list(rounds)))
    return {goal.title: table[goal.title][-1] for goal in GOALS}


def test_what_the_goals_ask_for_is_reached() -> None:
    assert set(reached(measured()).values()) == {"yes"}


def test_what_is_wanted_of_a_peer_is_missed_when_it_is_as_fast() -> None:
    missed = {title for title, holds in reached(measured(llama=1.0, vllm=1.0)).items() if holds == "no"}
    titles = {
        goal.title for goal in GOALS if "by vLLM's" in goal.title or "peer" in goal.title or "words, by llama" in goal.title
    }
    assert missed == titles


def test_the_better_peer_counts() -> None:
    title = "output, c=16, by the better peer's"
    table = rows(tables.goals(GOALS, [measured(llama=2.0, vllm=8.0)]))
    assert table[title][0] == "2.00 x"


def test_drafts_are_no_excuse_for_slow_steps() -> None:
    slow = measured()
    slow[NO_DRAFTS]["one user"]["itl_ms"]["p50"] = 100.0
    assert [title for title, holds in reached(slow).items() if holds == "no"] == [
        "inter-token p50 without drafts, c=1, by vLLM's",
        "inter-token p50 without drafts, c=1, by llama-server's",
    ]


def test_waste_above_the_bound_is_missed() -> None:
    assert [title for title, holds in reached(measured(waste=4.1)).items() if holds == "no"] == [
        "unused part of the held KV cache, c=16, mean",
        "unused part of the held KV cache, c=16, largest",
    ]


def test_a_peer_that_is_not_there_is_no_success() -> None:
    without = measured()
    del without[VLLM]
    missed = {title for title, holds in reached(without).items() if holds == "no"}
    assert missed == {goal.title for goal in GOALS if "by vLLM's" in goal.title or "peer" in goal.title}


def test_every_server_has_a_column_and_gaps_are_named() -> None:
    table = rows(tables.figures(COLUMNS, SERVERS, [measured(), measured(baton=2.0)]))
    first = dict(zip(SERVERS, table["time to first token p50, 900 words, c=1, ms"], strict=True))
    assert first == {
        BATON: "15.0 (10.0..20.0)",
        NO_DRAFTS: "not measured",
        LLAMA_SERVER: "40.0 (40.0..40.0)",
        VLLM: "30.0 (30.0..30.0)",
    }
    assert table["weights for decode, MB"] == ["66.0 (66.0..66.0)", *["not measured"] * 3]
    assert table["long prompts answered meanwhile, per s"][0] == "0.50 (0.50..0.50)"
