"""Turns the figures of a comparison into a table for people and a file for machines."""

import os
import platform
import re
import shlex
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.cases import FIGURES, OWN_FIGURES, Run, median

RESULTS = Path(__file__).resolve().parent / "results"
BUSY = 0.5  # load average


def machine() -> dict[str, Any]:
    """Name what the numbers depend on: CPU, cores, system, versions, and how busy the machine was before we began."""
    revision = subprocess.run(["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=False)
    return {
        "cpu": _cpu_name(),
        "cores": os.cpu_count(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "baton": f"{version('baton-llm')} ({revision.stdout.strip() or 'no git'})",
        "load_average_before": round(os.getloadavg()[0], 2),
        "command": shlex.join(["python", "-m", "benchmarks", *sys.argv[1:]]),
    }


def warn_when_busy(facts: dict[str, Any]) -> None:
    """Say so when other programs take a share that shows."""
    if facts["load_average_before"] > BUSY:
        print(
            f"baton: this machine is busy (load average {facts['load_average_before']}); the figures will show that too",
            flush=True,
        )


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def table(ours: list[Run], peers: list[Run]) -> str:
    """Write the comparison as a Markdown table: medians, the median ratio and how far single ratios strayed."""
    rows: list[tuple[str, ...]] = [("", "Baton", "llama-server", "ratio", "of single runs", "wanted", "")]
    for figure in FIGURES:
        ratios = figure.ratios(ours, peers)
        ratio = median(ratios)
        bound = f"at most {figure.at_most:.2f}" if figure.at_most is not None else f"at least {figure.at_least:.2f}"
        middle = [f"{median([figure.pick(run) for run in runs]):.1f} {figure.unit}" for runs in (ours, peers)]
        spread = f"{min(ratios):.2f} to {max(ratios):.2f}"
        rows.append((figure.title, *middle, f"{ratio:.2f}", spread, bound, "yes" if figure.holds(ratio) else "no"))
    for own in OWN_FIGURES:
        values = [run["own"][own.key] for run in ours if run["own"][own.key] is not None]
        value, holds = "not reported", "no"
        if values:
            value, holds = f"{median(values):.2f} {own.unit}", "yes" if median(values) <= own.at_most else "no"
        rows.append((own.title, value, "", "", "", f"at most {own.at_most:g} {own.unit}", holds))
    return aligned(rows)


def aligned(rows: list[tuple[str, ...]]) -> str:
    """Write rows as a Markdown table; the first one is its head."""
    widths = [max(3, *map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |" for row in rows]
    return "\n".join([lines[0], "|" + "|".join("-" * (width + 2) for width in widths) + "|", *lines[1:]])


def write(name: str, title: str, text: str, facts: dict[str, Any], figures: dict[str, Any]) -> list[Path]:
    """Keep a comparison under `benchmarks/results`: raw figures as JSON, the tables as Markdown. Returns both paths."""
    RESULTS.mkdir(exist_ok=True)
    stem = f"{name}-{re.sub('[^a-z0-9]+', '-', facts['cpu'].lower()).strip('-')}"
    raw, page = RESULTS / f"{stem}.json", RESULTS / f"{stem}.md"
    raw.write_bytes(msgspec.json.format(msgspec.json.encode(facts | figures)) + b"\n")
    about = "\n".join(f"- {key}: {value}" for key, value in facts.items())
    page.write_text(f"# {title}\n\n{text}\n\n{about}\n", encoding="utf-8")
    return [raw, page]
