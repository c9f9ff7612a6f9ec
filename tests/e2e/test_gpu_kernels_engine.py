"""The engine on a GPU's kernels, in Triton's interpreter: the same tokens as on the CPU's, through the whole gateway."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.backends.engine.evaluation.spoken_model import save_speaking
from tests.e2e.gateway_process import Server, eventually, running

EXACT = 'prefill = "fp32"\ndecode = "fp32"\nhead = "fp32"'
MODELS = {
    "cpu": f'device = "cpu"\n{EXACT}',
    "gpu": f'device = "interpreter"\n{EXACT}',
    "packed": 'device = "interpreter"\nprefill = "fp32"\ndecode = "int4-g32"\nhead = "int8"\nkv = "int8"',
}
LONG = "The quick brown fox jumps over the lazy dog, and the dog sleeps on. "


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("gpu")
    path = save_speaking(tmp_path_factory.mktemp("models") / "speaking", num_hidden_layers=2)
    settings = "slots = 3\ncontext = 256\nthreads = 1\ndraft_tokens = 3"
    text = "\n".join(f'[models.{name}]\nengine = "torch"\npath = "{path}"\n{settings}\n{own}' for name, own in MODELS.items())
    with running(folder, text, TRITON_INTERPRET="1") as gateway:
        gateway.wait_until_ready()
        yield gateway


def complete(server: Server, model: str, prompt: str, **options: object) -> list[str]:
    body = {"model": model, "prompt": prompt, "max_tokens": 8, "temperature": 0, "ignore_eos": True} | options
    answer = server.http.post("/v1/completions", json=body)
    assert answer.status_code == 200, answer.text
    assert answer.json()["usage"]["completion_tokens"] == 8 * int(str(options.get("n", 1)))
    return [choice["text"] for choice in answer.json()["choices"]]


@pytest.mark.parametrize("prompt", ["A", LONG[:33], LONG], ids=["a letter", "some blocks", "long"])
def test_the_same_tokens_come_from_both_kinds_of_kernels(server: Server, prompt: str) -> None:
    assert complete(server, "gpu", prompt) == complete(server, "cpu", prompt)


def test_drawn_choices_beside_each_other_are_the_same_too(server: Server) -> None:
    drawn = {"temperature": 0.9, "top_p": 0.95, "seed": 5, "n": 3}
    found = complete(server, "gpu", LONG[:40], **drawn)
    assert found == complete(server, "cpu", LONG[:40], **drawn)
    assert len(set(found)) == 3


def test_a_cached_prefix_changes_nothing(server: Server) -> None:
    first = complete(server, "gpu", LONG + "Once")
    assert complete(server, "gpu", LONG + "Once") == first
    assert complete(server, "gpu", LONG + "Twice") == complete(server, "cpu", LONG + "Twice")


def test_packed_weights_and_an_int8_cache_answer(server: Server) -> None:
    [found] = complete(server, "packed", LONG)
    assert complete(server, "packed", LONG) == [found]
    assert len(found.encode()) >= 8


def test_a_gpu_that_is_not_there_is_an_error_that_names_it(tmp_path: Path) -> None:
    path = save_speaking(tmp_path / "speaking")
    with running(tmp_path, f'[models.m]\nengine = "torch"\npath = "{path}"\ndevice = "cuda"') as gateway:
        eventually(lambda: "finds no NVIDIA GPU" in gateway.log(), "the log says what is wrong")
        assert gateway.chat().status_code == 503
