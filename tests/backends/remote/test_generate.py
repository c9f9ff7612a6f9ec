"""Deltas from an upstream's stream: what is asked for on the wire, and what becomes of odd answers."""

import asyncio
import math
from array import array
from base64 import b64encode

import pytest

from backends.errors import Failed, ModelNotFound, Rejected, TimedOut, Unavailable, Unsupported
from backends.types import (
    Chat,
    EmbedRequest,
    Function,
    JsonSchemaFormat,
    Message,
    Sampling,
    Text,
    TokenizeRequest,
    Tokens,
    Tool,
    ToolCallDelta,
    ToolChoice,
    Usage,
)
from tests.backends.remote.rig import ROLE, STOP, USAGE, Rig, chunk, play, request
from tests.upstream import Bytewise, Pause, answer, event, json_answer, stream

DONE = b"data: [DONE]\n\n"


async def test_text_arrives_whole_however_the_bytes_do(rig: Rig) -> None:
    text = "é漢🧑‍🚀\u2028\u0085ok"
    backend, _ = await rig(stream(Bytewise(event(ROLE) + event(chunk({"content": text})) + event(STOP) + event(USAGE) + DONE)))
    deltas = await play(backend)
    assert [delta.text for delta in deltas] == [text, ""]
    assert (deltas[-1].finish, deltas[-1].usage) == ("stop", Usage(7, 3, 2))
    assert sum(delta.tokens for delta in deltas) == 3


async def test_without_a_usage_the_chunks_are_counted(rig: Rig) -> None:
    backend, _ = await rig(stream(event(ROLE), event(chunk({"content": "a"})) * 5, event(STOP), DONE))
    assert (await play(backend))[-1].usage == Usage(0, 5)


@pytest.mark.parametrize("field", ["reasoning", "reasoning_content"])
async def test_reasoning_is_kept_apart_from_the_text(rig: Rig, field: str) -> None:
    backend, _ = await rig(stream(event(chunk({field: "hm"})), event(chunk({"content": "a"})), event(STOP), DONE))
    deltas = await play(backend)
    assert [(delta.reasoning, delta.text, delta.tokens) for delta in deltas] == [("hm", "", 1), ("", "a", 1), ("", "", 0)]


async def test_tool_calls_are_numbered_and_named_once(rig: Rig) -> None:
    def call(**fields: object) -> bytes:
        return event(chunk({"tool_calls": [fields]}))

    pieces = (
        call(index=1, id="call_a", type="function", function={"name": "f", "arguments": ""}),
        call(index=1, id="call_a", function={"name": "f", "arguments": "{}"}),
        call(index=2, id="call_b", function={"name": "g"}),
        call(index=3, function={"name": "h", "arguments": "{}"}),
    )
    backend, _ = await rig(stream(*pieces, event(chunk(finish="tool_calls")), DONE))
    deltas = await play(backend)
    assert [call for delta in deltas for call in delta.tool_calls] == [
        ToolCallDelta(0, "call_a", "f"),
        ToolCallDelta(0, None, None, "{}"),
        ToolCallDelta(1, "call_b", "g"),
        ToolCallDelta(2, "call_r1_0_2", "h", "{}"),
    ]
    assert deltas[-1].finish == "tool_calls"


async def test_each_choice_finishes_once_and_the_last_delta_of_all_has_the_usage(rig: Rig) -> None:
    def piece(index: int, text: str, finish: str | None = None) -> bytes:
        return event({"choices": [{"index": index, "delta": {"content": text}, "finish_reason": finish}]})

    backend, _ = await rig(
        stream(piece(1, "b", "stop"), piece(0, "a"), piece(1, "", "stop"), piece(0, "", "length"), event(USAGE), DONE)
    )
    deltas = await play(backend, request(n=2))
    assert [(d.index, d.text, d.finish, d.usage is None) for d in deltas] == [
        (1, "b", "stop", True),
        (0, "a", None, True),
        (0, "", "length", False),
    ]


async def test_chat_logprobs_have_exact_bytes(rig: Rig) -> None:
    top = [{"token": "a", "logprob": -0.5, "bytes": None}, {"token": "�", "logprob": -9e9, "bytes": [195]}]
    logprobs = {"content": [{"token": "�", "logprob": -0.5, "bytes": [230, 188], "top_logprobs": top}]}
    part = {"index": 0, "delta": {"content": ""}, "logprobs": logprobs, "finish_reason": None}
    backend, _ = await rig(stream(event(chunk(choices=[part])), event(STOP), DONE))
    token = (await play(backend, request(logprobs=2)))[0].logprobs[0]
    assert (token.piece, token.logprob) == (b"\xe6\xbc", -0.5)
    assert [(other.piece, other.logprob) for other in token.top] == [(b"a", -0.5), (b"\xc3", -9999.0)]


@pytest.mark.parametrize(
    ("reason", "meant"), [("stop", "stop"), ("length", "length"), ("function_call", "tool_calls"), ("eos", "stop")]
)
async def test_finish_reasons_of_other_servers_are_understood(rig: Rig, reason: str, meant: str) -> None:
    backend, _ = await rig(stream(event(chunk({"content": "a"}, reason)), DONE))
    assert (await play(backend))[-1].finish == meant


@pytest.mark.parametrize(
    ("steps", "code"),
    [
        ([event(ROLE)], "upstream_empty"),
        ([event(ROLE), DONE], "upstream_empty"),
        ([event(chunk({"content": "a"}))], "upstream_protocol_error"),
        ([event(chunk({"content": "a"})), event({"error": {"message": "boom"}})], "upstream_error"),
        ([event(chunk({"content": "a"}, "error")), DONE], "upstream_error"),
        ([event(chunk(choices=[{"index": 7, "delta": {"content": "a"}}])), DONE], "upstream_protocol_error"),
        ([b"data: nonsense\n\n"], "upstream_protocol_error"),
    ],
)
async def test_broken_streams_fail(rig: Rig, steps: list[bytes], code: str) -> None:
    backend, _ = await rig(stream(*steps))
    with pytest.raises(Failed) as caught:
        await play(backend)
    assert caught.value.code == code
    assert (await backend.health()).running == 0


async def test_an_end_mark_without_a_finish_reason_counts_as_stop(rig: Rig) -> None:
    backend, _ = await rig(stream(event(chunk({"content": "a"})), DONE))
    assert [delta.finish for delta in await play(backend)] == [None, "stop"]


async def test_a_stall_is_a_timeout_and_closes_the_connection(rig: Rig) -> None:
    backend, upstream = await rig(stream(event(chunk({"content": "a"})), Pause(60)), between_tokens_timeout_s=0.1)
    with pytest.raises(TimedOut, match="no further output"):
        await play(backend)
    await asyncio.wait_for(upstream.gone.wait(), 5)


async def test_only_what_differs_from_the_defaults_is_sent(rig: Rig) -> None:
    backend, upstream = await rig(stream(event(STOP), DONE))
    await play(backend)
    assert upstream.requests[0].path == "/v1/chat/completions"
    assert upstream.requests[0].json() == {
        "model": "theirs",
        "stream": True,
        "stream_options": {"include_usage": True},
        "messages": [{"role": "user", "content": "hi"}],
        "temperature": 1.0,
    }


async def test_everything_that_was_asked_for_is_sent(rig: Rig) -> None:
    schema = {"type": "object"}
    prompt = Chat(
        messages=(Message(role="user", content="hi"),),
        tools=(Tool(function=Function(name="f")),),
        tool_choice=ToolChoice(mode="required", name="f"),
        parallel_tool_calls=False,
        template_kwargs={"enable_thinking": False},
    )
    sampling = Sampling(temperature=0.0, top_k=3, top_p=0.5, min_p=0.1, seed=7, logit_bias={5: 1.5}, repetition_penalty=1.1)
    asked = request(
        prompt=prompt,
        max_tokens=9,
        n=2,
        stop=("x",),
        stop_token_ids=(4,),
        ignore_eos=True,
        sampling=sampling,
        logprobs=2,
        response_format=JsonSchemaFormat(schema),
    )
    backend, upstream = await rig(stream(event(STOP), DONE), include_usage=False, strip_params=("seed",))
    await play(backend, asked)
    assert upstream.requests[0].json() == {
        "model": "theirs",
        "stream": True,
        "messages": [{"role": "user", "content": "hi"}],
        "tools": [{"type": "function", "function": {"name": "f"}}],
        "tool_choice": {"type": "function", "function": {"name": "f"}},
        "parallel_tool_calls": False,
        "chat_template_kwargs": {"enable_thinking": False},
        "max_tokens": 9,
        "n": 2,
        "stop": ["x"],
        "stop_token_ids": [4],
        "ignore_eos": True,
        "temperature": 0.0,
        "top_k": 3,
        "top_p": 0.5,
        "min_p": 0.1,
        "logit_bias": {"5": 1.5},
        "repetition_penalty": 1.1,
        "logprobs": True,
        "top_logprobs": 2,
        "response_format": {"type": "json_schema", "json_schema": {"name": "response", "schema": schema, "strict": True}},
    }


async def test_a_server_that_must_be_told_is_told_to_continue_the_last_message(rig: Rig) -> None:
    listed = json_answer({"data": [{"id": "theirs", "owned_by": "vllm", "max_model_len": 4096}]})
    backend, upstream = await rig(listed, stream(event(STOP), DONE))
    await backend.check()
    assert (await backend.models())[0].context_length == 4096
    messages = (Message(role="user", content="hi"), Message(role="assistant", content="Well"))
    await play(backend, request(prompt=Chat(messages=messages, continue_final=True)))
    sent = upstream.requests[1].json()
    assert (sent["continue_final_message"], sent["add_generation_prompt"]) == (True, False)


async def test_token_ids_go_as_they_are(rig: Rig) -> None:
    part = {"index": 0, "text": "a", "finish_reason": "length"}
    backend, upstream = await rig(stream(event({"choices": [part]}), DONE))
    deltas = await play(backend, request(prompt=Tokens((1, 2)), max_tokens=3))
    assert (deltas[0].text, deltas[0].finish) == ("a", "length")
    assert upstream.requests[0].path == "/v1/completions"
    assert upstream.requests[0].json()["prompt"] == [1, 2]


EMBED = EmbedRequest(id="e", model="public", inputs=(Text("a"), Text("b")), dimensions=2)


@pytest.mark.parametrize("packed", [False, True])
async def test_vectors_are_put_in_order_and_normalised(rig: Rig, packed: bool) -> None:
    vectors = [[3.0, 4.0], [0.0, 2.0]]
    data = [
        {"index": i, "embedding": b64encode(array("f", v).tobytes()).decode() if packed else v}
        for i, v in reversed(list(enumerate(vectors)))
    ]
    backend, upstream = await rig(json_answer({"data": data, "usage": {"prompt_tokens": 5}}))
    found = await backend.embed(EMBED)
    first, second = [array("f", vector) for vector in found.vectors]
    assert math.isclose(first[0], 0.6, rel_tol=1e-6)
    assert list(second) == [0.0, 1.0]
    assert found.usage == Usage(5)
    assert upstream.requests[0].json()["dimensions"] == 2


@pytest.mark.parametrize(
    "data", [[], [{"embedding": [1.0]}], [{"embedding": "!"}] * 2, [{"embedding": [None]}] * 2, [{}] * 2, 7]
)
async def test_vectors_that_are_missing_or_none_fail(rig: Rig, data: object) -> None:
    backend, _ = await rig(json_answer({"data": data}))
    with pytest.raises(Failed):
        await backend.embed(EMBED)


async def test_tokenizers_of_vllm_are_understood(rig: Rig) -> None:
    tokens = json_answer({"count": 2, "max_model_len": 9, "tokens": [5, 6], "token_strs": ["He", "llo"]})
    backend, upstream = await rig(tokens, json_answer({"prompt": "Hello"}))
    listed = await backend.tokenize(TokenizeRequest(model="public", prompt=Text("Hello")))
    assert (listed.ids, listed.pieces) == ((5, 6), (b"He", b"llo"))
    assert await backend.detokenize("public", (5, 6)) == "Hello"
    assert [received.path for received in upstream.requests] == ["/tokenize", "/detokenize"]


async def test_a_server_without_a_tokenizer_is_unsupported(rig: Rig) -> None:
    backend, _ = await rig(answer(404, b'{"detail":"Not Found"}'))
    with pytest.raises(Unsupported):
        await backend.tokenize(TokenizeRequest(model="public", prompt=Text("a")))
    with pytest.raises(Unsupported):
        await backend.detokenize("public", (1,))


async def test_an_embedding_request_to_a_model_without_them_is_unsupported(rig: Rig) -> None:
    backend, _ = await rig(json_answer({}), capabilities=("chat",))
    with pytest.raises(Unsupported):
        await backend.embed(EMBED)


@pytest.mark.parametrize(
    ("script", "kind"),
    [
        (json_answer({"data": []}), None),
        (answer(404, b""), None),
        (answer(429, b""), None),
        (answer(200, b"hello"), None),
        (answer(401, b""), Unavailable),
        (answer(500, b""), Failed),
        (answer(503, b""), Unavailable),
    ],
)
async def test_a_check_tells_a_living_server_from_a_dead_one(rig: Rig, script, kind) -> None:
    backend, upstream = await rig(script)
    if kind is None:
        await backend.check()
    else:
        with pytest.raises(kind):
            await backend.check()
    assert (await backend.health()).state == ("ready" if kind is None else "degraded")
    assert (upstream.requests[0].method, upstream.requests[0].path) == ("GET", "/v1/models")


async def test_another_model_and_a_bad_request_are_told_apart(rig: Rig) -> None:
    backend, _ = await rig(json_answer({"error": {"message": "n is 9, the limit is 4", "param": "n"}}, 400))
    with pytest.raises(ModelNotFound):
        await play(backend, request(model="nope"))
    with pytest.raises(Rejected, match="the limit is 4") as caught:
        await play(backend)
    assert caught.value.param == "n"
    assert (await backend.health()).state == "ready"
