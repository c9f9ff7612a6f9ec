"""One gateway in front of everything: an embedded model, a llama-server, two equal upstreams and scripted models."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import anthropic
import openai
import pytest

from gateway.config_sources.embedded import find_embedded_model
from tests.e2e.gateway_process import Server, eventually, running
from tests.integration.processes import ServerProcess, baton_process, find_llama_server, llama_server_process

KEY = "alice"
UPSTREAM_KEY = "between-servers"
TEXT = "Hello, 世界! 🧑‍🚀"

SCRIPTED = f"""
[models.plain]
engine = "fake"
replies = [{{ text = "{TEXT}" }}]

[models.tools]
engine = "fake"
replies = [
    {{ text = "Let me see.", tool_calls = [{{ name = "weather", arguments = '{{"city": "Köln"}}' }}] }},
    {{ text = "It rains." }},
]

[models.json]
engine = "fake"

[[models.json.replies]]
text = '{{"name": "Ada", "age": 36}}'
tool_calls = [{{ name = "Person", arguments = '{{"name": "Ada", "age": 36}}' }}]
"""

ROUTES = """
[models.small]
engine = "fake"
context = 64

[models.broken]
engine = "fake"
error = "Unavailable"

[routes.twins]
deployments = [{ model = "twin-a", weight = 3 }, { model = "twin-b", weight = 1 }]
private = true

[routes.short]
deployments = [{ model = "small" }]
context_fallbacks = ["plain"]

[routes.shaky]
deployments = [{ model = "broken" }]
fallbacks = ["plain"]
"""


def remote(name: str, url: str, model: str) -> str:
    """A model on another server."""
    lines = f'engine = "remote"\nurl = "{url}"\nmodel = "{model}"\napi_key_env = "UPSTREAM_KEY"'
    return f"\n[models.{name}]\n{lines}\n"


class Stack:
    """What runs: the gateway, two equal upstreams that it calls `twins`, and a llama-server, where one is built."""

    def __init__(self, server: Server, twins: dict[str, ServerProcess], llama: ServerProcess | None) -> None:
        self.server, self.twins, self.llama = server, twins, llama

    def ask_twins(self, count: int) -> list[str]:
        """Who answered each of so many requests; every one must be answered."""
        answers = [self.server.chat(key=KEY, model="twins") for _ in range(count)]
        assert {answer.status_code for answer in answers} == {200}, [answer.text for answer in answers]
        return [answer.headers["x-baton-deployment"] for answer in answers]


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    model, folder = find_embedded_model(), tmp_path_factory.mktemp("stack")
    if model is None:
        pytest.skip("the embedded model is not installed: make test")
    binary = find_llama_server()
    with ExitStack() as servers:
        twins = {
            name: servers.enter_context(
                baton_process(folder / name, f'{SCRIPTED}\n[models.twin]\nengine = "fake"\n', BATON_API_KEY=UPSTREAM_KEY)
            )
            for name in ("twin-a", "twin-b")
        }
        llama = servers.enter_context(llama_server_process(folder / "llama", binary, Path(model))) if binary else None
        text = f'[models.smol]\npath = "{model}"\nthreads = 1\nslots = 2\ncontext = 2048\n{SCRIPTED}{ROUTES}'
        text += "".join(remote(name, twin.url, "twin") for name, twin in twins.items())
        text += "".join(remote(f"far-{name}", twins["twin-b"].url, name) for name in ("plain", "tools", "json"))
        text += remote("llama", llama.url, "smollm2") if llama else ""
        for server in (*twins.values(), *([llama] if llama else [])):
            server.wait_until_ready()
        gateway = running(folder / "gateway", text, BATON_API_KEY=KEY, UPSTREAM_KEY=UPSTREAM_KEY)
        server = servers.enter_context(gateway)
        eventually(lambda: server.chat(key=KEY, model="smol", max_tokens=1).status_code == 200, "the engine serves")
        yield Stack(server, twins, llama)


@pytest.fixture(params=["", "far-"], ids=["here", "far"])
def place(request: pytest.FixtureRequest) -> str:
    """Put before a scripted model's name: whether it is in this gateway or behind another one."""
    prefix: str = request.param
    return prefix


@pytest.fixture
def openai_client(stack: Stack) -> Iterator[openai.OpenAI]:
    with stack.server.openai(KEY) as client:
        yield client


@pytest.fixture
def anthropic_client(stack: Stack) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=stack.server.url, api_key=KEY, max_retries=0, timeout=60) as client:
        yield client
