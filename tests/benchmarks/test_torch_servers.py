"""The torch comparison starts what it says it compares, sends each server its cases, and goes on without a missing peer."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest
from steps import StepError

from backends.engine.config import EngineConfig
from backends.engine.tokenizers.load import load_tokenizer
from backends.engine.weights.open_source import open_source
from benchmarks import hf_folder, servers, torch_engine, torch_servers
from benchmarks.generator import generate
from benchmarks.servers import BenchmarkError, Running
from benchmarks.torch_cases import (
    AGAIN,
    BATON,
    CONTEXT,
    INTERRUPTED,
    LLAMA_SERVER,
    LOADS,
    LONG,
    NO_DRAFTS,
    ONE,
    OWN,
    SERVERS,
    SLOTS,
    VLLM,
)
from gateway.config import load_settings


def server() -> Running:
    return Running(url="http://127.0.0.1:9", process=psutil.Process(), ready_s=1.0)


@contextmanager
def started() -> Iterator[Running]:
    yield server()


@contextmanager
def failing(error: Exception) -> Iterator[Running]:
    raise error
    yield server()


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Record what would have been started."""
    recorded: list[list[str]] = []

    def running(command: list[str], *args: object, **more: object) -> AbstractContextManager[Running]:
        recorded.append(command)
        return started()

    for module in (servers, torch_servers):
        monkeypatch.setattr(module, "running", running)
    return recorded


@pytest.mark.parametrize(
    ("starter", "drafts"), [(torch_servers.baton, EngineConfig(path="").draft_tokens), (torch_servers.baton_without_drafts, 0)]
)
def test_baton_is_told_to_use_the_torch_engine(starter: Any, drafts: int, commands: list[list[str]], tmp_path: Path) -> None:
    with starter(servers.embedded_model(), 2, tmp_path):
        pass
    settings = load_settings(Path(commands[0][commands[0].index("--config") + 1]), {})
    model = settings.models["bench"]
    assert isinstance(model, EngineConfig)
    assert (model.draft_tokens, model.threads, model.slots) == (drafts, 2, SLOTS)
    assert (model.context, model.kv_tokens) == (CONTEXT, SLOTS * CONTEXT)


def test_llama_server_has_as_many_slots_of_the_same_size(commands: list[list[str]], tmp_path: Path) -> None:
    with torch_servers.llama_server(tmp_path / "binary", tmp_path / "model", 2, tmp_path):
        pass
    options = dict(zip(commands[0], commands[0][1:], strict=False))
    assert (options["-t"], options["-np"], options["-c"]) == ("2", str(SLOTS), str(SLOTS * CONTEXT))


def test_the_folder_for_vllm_is_the_model_of_the_gguf_file(tmp_path: Path) -> None:
    model, folder = servers.embedded_model(), tmp_path / "model"
    hf_folder.main(model, folder)
    original, copy = load_tokenizer(model), load_tokenizer(folder)
    text = "Hello, world: naïve 3.14!\n"
    assert copy.tokenize(text, add_special=True, parse_special=False) == original.tokenize(
        text, add_special=True, parse_special=False
    )
    assert copy.chat_template == original.chat_template
    generation = msgspec.json.decode((folder / "generation_config.json").read_bytes())
    assert set(generation["eos_token_id"]) == original.end_tokens
    source, written = open_source(model), open_source(folder)
    assert written.shape == source.shape
    for each in (source, written):
        each.close()


def test_a_missing_peer_is_named_and_a_missing_baton_is_fatal() -> None:
    how: torch_engine.Starters = {
        VLLM: partial(failing, StepError("a long log\npip found nothing")),
        LLAMA_SERVER: started,
        BATON: started,
    }
    with ExitStack() as stack:
        alive, absent = torch_engine.start(stack, how)
    assert ([*alive], absent) == ([LLAMA_SERVER, BATON], {VLLM: "pip found nothing"})
    with ExitStack() as stack, pytest.raises(BenchmarkError, match="broken"):
        torch_engine.start(stack, {BATON: partial(failing, BenchmarkError("broken"))})


def figures(tokens: int) -> dict[str, Any]:
    times = {"p50": 1.0, "p95": 1.0, "p99": 1.0}
    return {"tokens": tokens, "tok_s": 1.0, "ttft_ms": times, "itl_ms": times}


def test_cases_go_to_the_servers_that_are_to_have_them_in_another_order_each_round(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    sent: list[tuple[str, str]] = []

    def one_load(name: str, server: Running, load: Any, salt: str, quick: bool) -> dict[str, Any]:
        sent.append((load.name, name))
        return figures(1)

    monkeypatch.setattr(torch_engine, "one_load", one_load)
    monkeypatch.setattr(torch_engine, "interrupt", lambda server, salt: figures(1))
    alive, own = {name: server() for name in SERVERS}, {name: {"rss_mb": 1.0} for name in SERVERS}
    first = torch_engine.one_round(alive, 0, "s", True, own)
    orders = [[name for load, name in sent if load == ONE.name]]
    sent.clear()
    torch_engine.one_round(alive, 1, "s", True, own)
    orders.append([name for load, name in sent if load == ONE.name])
    assert orders == [[*SERVERS], [*SERVERS[1:], SERVERS[0]]]
    assert [*first[NO_DRAFTS]] == [OWN, *(load.name for load in LOADS if NO_DRAFTS in load.servers)]
    assert [*first[VLLM]] == [OWN, *(load.name for load in LOADS if VLLM in load.servers), INTERRUPTED]


def test_a_load_says_what_it_is_and_an_answer_of_another_length_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    arguments: list[list[str]] = []

    def generated(module: str, url: str, options: list[str], timeout_s: float) -> dict[str, Any]:
        arguments.append(options)
        return figures(LONG.quick_requests * LONG.max_tokens)

    monkeypatch.setattr(torch_engine, "generate", generated)
    for load in (LONG, AGAIN):
        torch_engine.send(server(), load, "salt", True)
    assert arguments[0] == arguments[1]  # the same prompts, for the cache to know
    assert "ignore_eos" in arguments[0][-1]
    with pytest.raises(BenchmarkError, match="8 tokens, 256 were expected"):
        torch_engine.send(server(), ONE, "salt", True)


def test_a_generator_whose_requests_failed_ends_the_run() -> None:
    options = ["--model", "m", "-c", "1", "-n", "1"]
    with pytest.raises(BenchmarkError, match=r"benchmarks.load .* failed"):
        generate("load", f"http://127.0.0.1:{servers.free_port()}", options, 30.0)
