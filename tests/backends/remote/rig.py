"""Remote backends in front of scripted upstreams, and the requests that are sent through them."""

import json
import re
from contextlib import AsyncExitStack, aclosing

from backends.forwarding import Forwarded, ForwardRequest
from backends.remote.backend import RemoteBackend
from backends.remote.config import RemoteConfig
from backends.types import Chat, Delta, GenerateRequest, Message
from tests.upstream import Script, ScriptedUpstream, scripted


class Rig:
    """Starts scripted upstreams with a backend in front of each, and ends them all."""

    def __init__(self, stack: AsyncExitStack) -> None:
        self._stack = stack

    async def __call__(self, *scripts: Script, **config: object) -> tuple[RemoteBackend, ScriptedUpstream]:
        upstream = await self._stack.enter_async_context(scripted(*scripts))
        backend = RemoteBackend("public", RemoteConfig(url=upstream.url, model="theirs", **config))
        self._stack.push_async_callback(backend.close)
        return backend, upstream


def forwarded(
    stream: bool = True, *, path: str = "/chat/completions", raw: bytes | None = None, **fields: object
) -> ForwardRequest:
    """A request as the gateway would hand it over."""
    default = {"model": "public", "stream": stream, "messages": [{"role": "user", "content": "é漢🧑‍🚀"}]}
    body = json.dumps(default | fields, ensure_ascii=False).encode() if raw is None else raw
    found = re.search(rb'"model":\s*("[^"]*")', body)
    options = json.loads(body).get("stream_options") or {}
    return ForwardRequest(
        path=path,
        body=body,
        model_span=found.span(1) if found else None,
        stream=stream,
        wants_usage=bool(options.get("include_usage")),
        headers=[(b"authorization", b"Bearer client"), (b"cookie", b"a=b"), (b"x-trace", b"t1"), (b"host", b"baton")],
        request_id="req-1",
        public_model="public",
    )


async def read_all(answer: Forwarded) -> bytes:
    pieces = [answer.first]
    while piece := await answer.next():
        pieces.append(piece)
    await answer.aclose()
    return b"".join(pieces)


async def forward(backend: RemoteBackend, request: ForwardRequest | None = None) -> bytes:
    """The whole body that a client would see."""
    return await read_all(await backend.forward(request or forwarded()))


def events(body: bytes) -> list[object]:
    """The events of a body that is in the plainest form; the last one must be `[DONE]`."""
    *blocks, end = body.split(b"\n\n")
    assert end == b""
    assert blocks.pop() == b"data: [DONE]", body
    assert all(block.startswith(b"data: {") for block in blocks), body
    return [json.loads(block[6:]) for block in blocks]


def chunk(delta: dict[str, object] | None = None, finish: str | None = None, **fields: object) -> dict[str, object]:
    choice = {"index": 0, "delta": delta or {}, "finish_reason": finish}
    return {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "public", "choices": [choice]} | fields


ROLE = chunk({"role": "assistant", "content": ""})
STOP = chunk(finish="stop")
USAGE = chunk(choices=[], usage={"prompt_tokens": 7, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 2}})


def request(**changes: object) -> GenerateRequest:
    prompt = Chat(messages=(Message(role="user", content="hi"),))
    return GenerateRequest(**({"id": "r1", "model": "public", "prompt": prompt} | changes))


async def play(backend: RemoteBackend, asked: GenerateRequest | None = None) -> list[Delta]:
    async with aclosing(backend.generate(asked or request())) as deltas:
        return [delta async for delta in deltas]
