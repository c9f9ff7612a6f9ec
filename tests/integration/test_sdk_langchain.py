"""LangChain's OpenAI integration through the whole gateway."""

import os
from collections.abc import AsyncIterator, Callable

import openai
import pytest
from pydantic import BaseModel

from tests.integration.conftest import KEY, TEXT, Stack

# It would send traces of what is tested to its maker's servers.
os.environ["LANGSMITH_TRACING"] = "false"
langchain_openai = pytest.importorskip("langchain_openai", reason="langchain-openai is not installed: make test")
messages = pytest.importorskip("langchain_core.messages")


class Person(BaseModel):
    """A person."""

    name: str
    age: int


def weather(city: str) -> str:
    """How the weather is in a city."""
    return f"rain in {city}"


@pytest.fixture
async def clients() -> AsyncIterator[dict[str, object]]:
    """HTTP clients that end with the test; those that LangChain makes are kept for the life of the process."""
    async with openai.DefaultAsyncHttpxClient() as in_loop:
        with openai.DefaultHttpxClient() as http:
            yield {"http_client": http, "http_async_client": in_loop}


@pytest.fixture
def chat_model(stack: Stack, place: str, clients: dict[str, object]) -> Callable[..., "langchain_openai.ChatOpenAI"]:
    """Build a chat model for one of the scripted models."""
    common = {"base_url": f"{stack.server.url}/v1", "api_key": KEY, "max_retries": 0} | clients
    return lambda name, **fields: langchain_openai.ChatOpenAI(model=f"{place}{name}", **common, **fields)


def test_invoke(chat_model: Callable[..., "langchain_openai.ChatOpenAI"]) -> None:
    answer = chat_model("plain").invoke("hi")
    assert answer.content == TEXT
    assert answer.response_metadata["finish_reason"] == "stop"
    assert answer.usage_metadata["output_tokens"] == len(TEXT.encode())


def test_stream(chat_model: Callable[..., "langchain_openai.ChatOpenAI"]) -> None:
    pieces = list(chat_model("plain", stream_usage=True).stream("hi"))
    assert "".join(piece.content for piece in pieces) == TEXT
    whole = pieces[0]
    for piece in pieces[1:]:
        whole += piece
    assert whole.usage_metadata["output_tokens"] == len(TEXT.encode())


async def test_stream_in_an_event_loop(chat_model: Callable[..., "langchain_openai.ChatOpenAI"]) -> None:
    assert "".join([piece.content async for piece in chat_model("plain").astream("hi")]) == TEXT


def test_bind_tools(chat_model: Callable[..., "langchain_openai.ChatOpenAI"]) -> None:
    bound = chat_model("tools").bind_tools([weather])
    answer = bound.invoke("hi")
    (call,) = answer.tool_calls
    assert (call["name"], call["args"]) == ("weather", {"city": "Köln"})
    result = messages.ToolMessage(weather(**call["args"]), tool_call_id=call["id"])
    assert bound.invoke([messages.HumanMessage("hi"), answer, result]).content == "It rains."


@pytest.mark.parametrize("method", ["json_schema", "function_calling", "json_mode"])
def test_with_structured_output(chat_model: Callable[..., "langchain_openai.ChatOpenAI"], method: str) -> None:
    asked = chat_model("json").with_structured_output(Person, method=method)
    assert asked.invoke("Who? Answer in JSON.") == Person(name="Ada", age=36)


def test_responses_api(chat_model: Callable[..., "langchain_openai.ChatOpenAI"]) -> None:
    answer = chat_model("plain", use_responses_api=True).invoke("hi")
    assert answer.text == TEXT


def test_embeddings(stack: Stack, place: str, clients: dict[str, object]) -> None:
    options = {"base_url": f"{stack.server.url}/v1", "api_key": KEY, "check_embedding_ctx_length": False} | clients
    model = langchain_openai.OpenAIEmbeddings(model=f"{place}plain", **options)
    vectors = model.embed_documents(["a cat", "tax law"])
    assert [len(vector) for vector in vectors] == [16, 16]
    assert vectors[0] != vectors[1]
