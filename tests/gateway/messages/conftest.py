"""A real gateway on a loopback port with scripted backends, and Anthropic's SDK in front of it."""

from collections.abc import AsyncGenerator, Iterator
from typing import Any

import anthropic
import httpx
import pytest
from msgspec import structs

from backends.fake import FakeBackend, FakeModel
from backends.fake_script import FakeCall, FakeReply
from backends.protocol import Backend
from backends.types import Delta, GenerateRequest, TokenizeRequest, TokenList, Usage
from tests.gateway.wire.conftest import Gateway

TEXT = "Hello, 世界! 🧑‍🚀\u2028ok"
LONG = "The quick brown fox jumps over the lazy dog. " * 40
HI = [{"role": "user", "content": "hi"}]


class Recorder(FakeBackend):
    """Remembers what it was asked, claims that 5 tokens were cached, and thinks before it answers."""

    asked: list[GenerateRequest | TokenizeRequest]

    def __init__(self, name: str, model: FakeModel) -> None:
        super().__init__(name, model)
        self.asked = []

    async def generate(self, request: GenerateRequest) -> AsyncGenerator[Delta]:
        self.asked.append(request)
        yield Delta(reasoning="Hm, ")
        yield Delta(reasoning="well.")
        async for delta in super().generate(request):
            usage = delta.usage
            yield structs.replace(delta, usage=usage and Usage(usage.prompt_tokens, usage.completion_tokens, 5))

    async def tokenize(self, request: TokenizeRequest) -> TokenList:
        self.asked.append(request)
        return await super().tokenize(request)


def scripted() -> dict[str, Backend]:
    """The models of the server."""
    calls = (FakeCall("weather", '{"city": "Köln", "days": 12345678901234567890}'), FakeCall("clock", ""))
    malformed = (FakeCall("weather", '{"city": "Kö'), FakeCall("clock", "[1]"))
    models = {
        "plain": FakeModel(replies=(FakeReply(text=TEXT), FakeReply(text="second"))),
        "tools": FakeModel(replies=(FakeReply(text="Let me see.", tool_calls=calls), FakeReply(text="Done."))),
        "malformed": FakeModel(replies=(FakeReply(tool_calls=malformed),)),
        "json": FakeModel(replies=(FakeReply(text='{"name": "Ada", "age": 36}'),)),
        "silent": FakeModel(replies=(FakeReply(),)),
        "small": FakeModel(context=64),
        "slow": FakeModel(replies=(FakeReply(text=LONG),), token_delay_s=0.01),
        "failed-first": FakeModel(error="Failed"),
        "timed-out": FakeModel(error="TimedOut"),
        "full": FakeModel(error="Overloaded"),
        "failed-later": FakeModel(error="Failed", error_after_tokens=3),
    }
    backends: dict[str, Backend] = {name: FakeBackend(name, model) for name, model in models.items()}
    backends["recorder"] = Recorder("recorder", FakeModel(replies=(FakeReply(text="Yes."),)))
    return backends


@pytest.fixture(scope="session")
def gateway() -> Iterator[Gateway]:
    with Gateway(scripted()) as running:
        yield running


@pytest.fixture
def recorder(gateway: Gateway) -> Recorder:
    backend = gateway.backends["recorder"]
    assert isinstance(backend, Recorder)
    backend.asked.clear()
    return backend


@pytest.fixture(scope="session")
def sdk(gateway: Gateway) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=gateway.url, api_key="none", max_retries=0, timeout=20) as client:
        yield client


@pytest.fixture(scope="session")
def http(gateway: Gateway) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=gateway.url, timeout=20) as client:
        yield client


def tool(name: str, **fields: Any) -> dict[str, Any]:
    """A tool on offer."""
    return {"name": name, "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}}} | fields


TOOLS = [tool("weather", description="How the weather is."), tool("clock")]
