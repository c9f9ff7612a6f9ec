"""A small client of a running gateway, for the commands that talk to one."""

import argparse
import os
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import msgspec
from msgspec import Struct

_CONNECT_TIMEOUT_S = 5.0
_SILENCE_TIMEOUT_S = 600.0


class ClientError(Exception):
    """What went wrong, in words for the person at the terminal."""


class ErrorObject(Struct):
    """The part of an error that people read."""

    message: str


class ErrorAnswer(Struct):
    """An error answer, or an error event of a stream."""

    error: ErrorObject


class ListedModel(Struct):
    """A model in the list, as far as it is shown."""

    id: str
    max_model_len: int | None = None


class ModelAnswer(Struct):
    """GET /v1/models."""

    data: list[ListedModel]


class ModelHealth(Struct):
    """How a model is."""

    state: str
    detail: str = ""


class ReadyAnswer(Struct):
    """GET /health/ready."""

    status: str
    models: dict[str, ModelHealth]


@contextmanager
def open_client(arguments: argparse.Namespace) -> Iterator[httpx.Client]:
    """Open a client with the URL and key of the options; connection problems become `ClientError`."""
    key = arguments.api_key or os.environ.get("BATON_API_KEY", "").split(",")[0].strip()
    headers = {"authorization": f"Bearer {key}"} if key else {}
    timeout = httpx.Timeout(_SILENCE_TIMEOUT_S, connect=_CONNECT_TIMEOUT_S)
    try:
        with httpx.Client(base_url=arguments.url, headers=headers, timeout=timeout) as client:
            yield client
    except httpx.ConnectError:
        raise ClientError(f"nothing answers at {arguments.url}. Start a gateway with: baton serve") from None
    except (httpx.HTTPError, httpx.InvalidURL, UnicodeError) as error:
        raise ClientError(f"{arguments.url}: {error or type(error).__name__}") from None


def list_models(client: httpx.Client) -> list[ListedModel]:
    """Ask for the models."""
    response = client.get("/v1/models")
    check(response)
    try:
        return msgspec.json.decode(response.content, type=ModelAnswer).data
    except msgspec.MsgspecError:
        raise ClientError(f"{client.base_url} is no OpenAI-compatible server") from None


def model_states(client: httpx.Client) -> dict[str, ModelHealth]:
    """Ask how the models are; empty when the server is no Baton."""
    try:
        return msgspec.json.decode(client.get("/health/ready").content, type=ReadyAnswer).models
    except msgspec.MsgspecError:
        return {}


def check(response: httpx.Response) -> None:
    """Raise `ClientError` with the server's own words unless the answer is a success. The body must have been read."""
    if response.is_success:
        return
    try:
        text = msgspec.json.decode(response.content, type=ErrorAnswer).error.message
    except msgspec.MsgspecError:
        text = response.text[:200]
    raise ClientError(f"the server answered {response.status_code}: {text}")
