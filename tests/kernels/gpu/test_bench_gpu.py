"""The benchmark of the kernels checks before it times; without a GPU it can only check."""

import sys

import pytest
import torch

from kernels.bench import __main__ as bench
from kernels.bench.case import Case, Work


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> None:
    monkeypatch.setattr(sys, "argv", ["bench", *arguments])
    bench.main()


def test_every_operator_is_checked(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    run(monkeypatch, "--check")
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(list(bench.all_cases()))
    assert all("off by" in line for line in lines)


def test_what_is_wrong_is_not_timed() -> None:
    work = Work(ours=lambda: torch.ones(3), peer=None, exact=lambda: torch.zeros(3) + 0.9, limit=1e-3, moved=1)
    case = Case(operator="sum", name="three", make=lambda device, dtype, small: work)
    with pytest.raises(SystemExit, match=r"sum, three: off by 1\.1e-01.*nothing is timed"):
        bench.check(case, work)


def test_without_a_gpu_nothing_is_timed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SystemExit):
        run(monkeypatch)
    assert "there is no NVIDIA GPU" in capsys.readouterr().err
