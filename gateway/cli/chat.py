"""`baton chat`: a conversation in the terminal with a running gateway.

Tokens appear as they come; Ctrl-C stops an answer, a second one at the prompt leaves. Piped input is one message whose answer
is all that stdout gets, so the command works in pipelines; everything else goes to stderr.
"""

import argparse
import sys
from collections.abc import Iterator
from time import perf_counter

import httpx
import msgspec
from msgspec import Struct

from gateway.cli.client import ClientError, ErrorAnswer, check, list_models, open_client

_HELP = "/reset starts a new conversation, /quit leaves, Ctrl-C stops an answer."


class ChunkDelta(Struct):
    """The new text."""

    content: str | None = None


class ChunkChoice(Struct):
    """One choice of a chunk."""

    delta: ChunkDelta


class ChunkUsage(Struct):
    """Counted tokens."""

    completion_tokens: int


class Chunk(Struct):
    """The part of a stream chunk that is shown."""

    choices: list[ChunkChoice] = []
    usage: ChunkUsage | None = None


class Conversation:
    """What was said so far, and how to go on."""

    def __init__(self, client: httpx.Client, arguments: argparse.Namespace, model: str) -> None:
        self._client = client
        self._system = arguments.system
        self._options = {
            key: value
            for key, value in (("max_tokens", arguments.max_tokens), ("temperature", arguments.temperature))
            if value is not None
        }
        self.model = model
        self.messages: list[dict[str, str]] = []
        self.tokens = 0
        self.reset()

    def reset(self) -> None:
        """Forget everything but the system prompt."""
        self.messages = [{"role": "system", "content": self._system}] if self._system else []

    def say(self, text: str) -> Iterator[str]:
        """Send a message and yield the pieces of the answer; what came is remembered, also when the caller stops early."""
        asked = [*self.messages, {"role": "user", "content": text}]
        body = {"model": self.model, "messages": asked, "stream": True, "stream_options": {"include_usage": True}}
        answer: list[str] = []
        self.tokens = 0
        try:
            with self._client.stream("POST", "/v1/chat/completions", json={**body, **self._options}) as response:
                if not response.is_success:
                    response.read()
                    check(response)
                for chunk in _chunks(response):
                    if chunk.usage is not None:
                        self.tokens = chunk.usage.completion_tokens
                    for choice in chunk.choices:
                        if choice.delta.content:
                            answer.append(choice.delta.content)
                            yield choice.delta.content
        finally:
            if answer:
                self.messages = [*asked, {"role": "assistant", "content": "".join(answer)}]


def run_chat(arguments: argparse.Namespace) -> int:
    """Talk until the input ends."""
    try:
        with open_client(arguments) as client:
            conversation = Conversation(client, arguments, arguments.model or _first_model(client))
            if sys.stdin.isatty():
                return _talk(conversation)
            text = sys.stdin.read().strip()
            if not text:
                raise ClientError("the input is empty")
            _answer(conversation, text)
            return 0
    except ClientError as error:
        print(f"baton: {error}", file=sys.stderr)
        return 1


def _talk(conversation: Conversation) -> int:
    print(f"Talking to {conversation.model}. {_HELP}", file=sys.stderr)
    while True:
        try:
            line = input("\n> ").strip()
        except (EOFError, KeyboardInterrupt):
            print(file=sys.stderr)
            return 0
        match line:
            case "":
                continue
            case "/quit" | "/exit":
                return 0
            case "/reset":
                conversation.reset()
                print("A new conversation.", file=sys.stderr)
            case _ if line.startswith("/"):
                print(_HELP, file=sys.stderr)
            case _:
                _answer_or_complain(conversation, line)


def _answer_or_complain(conversation: Conversation, text: str) -> None:
    try:
        _answer(conversation, text)
    except KeyboardInterrupt:
        print("\n(stopped)", file=sys.stderr)
    except ClientError as error:
        print(f"baton: {error}", file=sys.stderr)


def _answer(conversation: Conversation, text: str) -> None:
    begun = perf_counter()
    first = 0.0
    for piece in conversation.say(text):
        first = first or perf_counter()
        print(piece, end="", flush=True)
    print(flush=True)
    elapsed = perf_counter() - first
    if first and conversation.tokens > 1 and elapsed > 0:
        rate = (conversation.tokens - 1) / elapsed
        print(f"({conversation.tokens} tokens, {rate:.1f} tok/s, first after {first - begun:.2f} s)", file=sys.stderr)


def _first_model(client: httpx.Client) -> str:
    models = list_models(client)
    if not models:
        raise ClientError("the server has no models")
    return models[0].id


def _chunks(response: httpx.Response) -> Iterator[Chunk]:
    """Yield the chunks of an event stream. Lines end at newline bytes only: text may contain other line separators."""
    rest = b""
    for data in response.iter_bytes():
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            payload = line.removeprefix(b"data:").strip() if line.startswith(b"data:") else b""
            if payload == b"[DONE]":
                return
            if payload:
                yield _decode(payload)


def _decode(payload: bytes) -> Chunk:
    try:
        if payload.startswith(b'{"error"'):
            raise ClientError(msgspec.json.decode(payload, type=ErrorAnswer).error.message)
        return msgspec.json.decode(payload, type=Chunk)
    except msgspec.MsgspecError:
        raise ClientError("the server sent a chunk that cannot be read") from None
