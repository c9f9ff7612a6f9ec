"""Streams that are passed on: what the client sees of them, byte for byte, and what is learnt meanwhile."""

import asyncio

import pytest

from backends.errors import Failed, Rejected, TimedOut, Unavailable
from backends.remote.sse import DONE
from backends.types import Usage
from tests.backends.remote.rig import ROLE, STOP, USAGE, Rig, chunk, events, forward, forwarded, read_all
from tests.upstream import Bytewise, Close, Pause, Reset, Until, chunked_stream, event, json_answer, stream

TEXT = "é漢🧑‍🚀\u2028\u0085ok"
ANSWER = b"".join((event(ROLE), event(chunk({"content": TEXT}, new_field={"a": [1.0, None]})), event(STOP)))


async def test_a_plain_stream_passes_byte_for_byte(rig: Rig) -> None:
    backend, upstream = await rig(chunked_stream(ANSWER, event(USAGE), DONE))
    answer = await backend.forward(forwarded())
    assert answer.stream
    assert answer.first.startswith(event(ROLE) + event(chunk({"content": TEXT}, new_field={"a": [1.0, None]})))
    assert await read_all(answer) == ANSWER + DONE
    assert answer.usage == Usage(7, 3, 2)
    assert answer.finish == "stop"
    assert answer.output_events == 1
    assert answer.error is None
    assert upstream.requests[0].json()["messages"][0]["content"] == "é漢🧑‍🚀"


async def test_one_byte_per_write_changes_nothing(rig: Rig) -> None:
    backend, _ = await rig(stream(Bytewise(ANSWER + DONE)))
    assert await forward(backend) == ANSWER + DONE


async def test_many_plain_chunks_pass_unread_and_are_counted(rig: Rig) -> None:
    text = event(chunk({"content": "tok "}))
    backend, _ = await rig(chunked_stream(event(ROLE), text, *[text * 3] * 20, event(STOP) + DONE))
    answer = await backend.forward(forwarded())
    assert await read_all(answer) == event(ROLE) + text * 61 + event(STOP) + DONE
    assert answer.output_events == 61


@pytest.mark.parametrize("end", [b"\r\n", b"\r"])
async def test_other_line_ends_become_plain_ones(rig: Rig, end: bytes) -> None:
    backend, _ = await rig(stream((ANSWER + DONE).replace(b"\n", end)))
    assert await forward(backend) == ANSWER + DONE


@pytest.mark.parametrize(
    "noise", [b": ping\n\n", b":\n\n", b"id: 1\n\n", b"retry: 1000\n\n", b"event: x\n\n", b"data:\n\n", b"data: \n\n"]
)
async def test_comments_and_other_fields_are_left_out(rig: Rig, noise: bytes) -> None:
    body = noise.join((b"", event(ROLE), event(chunk({"content": "a"})), event(chunk({"content": "b"})), event(STOP), DONE))
    backend, _ = await rig(stream(noise, body))
    assert await forward(backend) == body.replace(noise, b"")


async def test_fields_inside_an_event_are_left_out(rig: Rig) -> None:
    backend, _ = await rig(stream(ANSWER.replace(b"data:", b"id: 7\nevent: m\nretry: 1\ndata:"), b"id: 8\n", DONE))
    assert await forward(backend) == ANSWER + DONE


async def test_data_over_several_lines_becomes_one_line(rig: Rig) -> None:
    backend, _ = await rig(stream(ANSWER.replace(b',"object"', b',\ndata: "object"'), DONE))
    assert events(await forward(backend)) == events(ANSWER + DONE)


async def test_the_usage_chunk_is_kept_for_a_client_that_asked(rig: Rig) -> None:
    backend, upstream = await rig(stream(ANSWER, event(USAGE), DONE))
    body = await forward(backend, forwarded(stream_options={"include_usage": True}))
    assert body == ANSWER + event(USAGE) + DONE
    assert upstream.requests[0].json()["stream_options"] == {"include_usage": True}


async def test_a_usage_chunk_without_choices_gets_an_empty_list(rig: Rig) -> None:
    usage = {name: value for name, value in USAGE.items() if name != "choices"}
    backend, _ = await rig(stream(ANSWER, event(usage), DONE))
    answer = await backend.forward(forwarded(stream_options={"include_usage": True}))
    assert events(await read_all(answer))[-1]["choices"] == []
    assert answer.usage == Usage(7, 3, 2)


async def test_usage_on_the_finish_chunk_is_metered_and_passed(rig: Rig) -> None:
    body = event(ROLE) + event(chunk(finish="length", usage={"prompt_tokens": 1, "completion_tokens": 2}))
    backend, _ = await rig(stream(body, DONE))
    answer = await backend.forward(forwarded())
    assert await read_all(answer) == body + DONE
    assert (answer.usage, answer.finish) == (Usage(1, 2), "length")


@pytest.mark.parametrize(
    "indexes", [[1, 1, 2, 2], [0, 0, 0, 0], [None, None, None, None], [5, None, 9, None], [0, 0, 1, 1]], ids=str
)
async def test_tool_calls_are_numbered_from_zero(rig: Rig, indexes: list[int | None]) -> None:
    pieces = [
        {"id": "call_a", "type": "function", "function": {"name": "f", "arguments": ""}},
        {"function": {"arguments": "{}"}},
        {"id": "call_b", "type": "function", "function": {"name": "g", "arguments": ""}},
        {"function": {"arguments": "[]"}},
    ]
    calls = [piece if index is None else {"index": index, **piece} for index, piece in zip(indexes, pieces, strict=True)]
    body = b"".join(event(chunk({"tool_calls": [call]})) for call in calls)
    backend, _ = await rig(stream(event(ROLE), body, event(chunk(finish="tool_calls")), DONE))
    seen = events(await forward(backend))[1:-1]
    assert [chunk["choices"][0]["delta"]["tool_calls"][0]["index"] for chunk in seen] == [0, 0, 1, 1]


async def test_calls_that_are_numbered_well_are_not_touched(rig: Rig) -> None:
    body = event(chunk({"tool_calls": [{"index": 0, "id": "c", "function": {"name": "f", "arguments": "{ }"}}]}))
    backend, _ = await rig(stream(body, event(chunk(finish="tool_calls")), DONE))
    assert await forward(backend) == body + event(chunk(finish="tool_calls")) + DONE


async def test_an_empty_finish_reason_becomes_null(rig: Rig) -> None:
    backend, _ = await rig(stream(event(chunk({"content": "a"}, "")), event(chunk({"content": "b"}, "")), event(STOP), DONE))
    assert [e["choices"][0]["finish_reason"] for e in events(await forward(backend))] == [None, None, "stop"]


@pytest.mark.parametrize("space", ["", " "])
async def test_the_model_is_called_by_its_public_name(rig: Rig, space: str) -> None:
    quoted = chunk({"content": 'say "model":"theirs" aloud'}, model="theirs")
    theirs = b"".join(event(c | {"model": "theirs"}) for c in (ROLE, quoted, chunk({"content": "b"}), STOP))
    backend, _ = await rig(
        chunked_stream(
            *(e + b"\n\n" for e in theirs.replace(b'"model":"th', f'"model":{space}"th'.encode()).split(b"\n\n")[:-1]), DONE
        )
    )
    seen = events(await forward(backend))
    assert {e["model"] for e in seen} == {"public"}
    assert seen[1]["choices"][0]["delta"]["content"] == 'say "model":"theirs" aloud'


@pytest.mark.parametrize("ending", [b"", b"data: [DONE]", b"data: [DONE]\n", DONE + DONE + b"junk\n\n", b"data:[DONE]\n\n"])
async def test_done_is_sent_exactly_once(rig: Rig, ending: bytes) -> None:
    backend, _ = await rig(stream(ANSWER, ending))
    assert await forward(backend) == ANSWER + DONE


async def test_the_connection_serves_again_after_a_stream(rig: Rig) -> None:
    backend, upstream = await rig(chunked_stream(ANSWER, DONE))
    for _ in range(3):
        assert await forward(backend) == ANSWER + DONE
    assert upstream.opened == 1


ERROR = {"error": {"message": "CUDA out of memory", "type": "server_error", "code": 500}}


@pytest.mark.parametrize(
    ("script", "kind", "code", "message"),
    [
        (stream(event(ROLE), event(ERROR), DONE), Failed, "upstream_error", "CUDA out of memory"),
        (stream(b"event: error\n", event({"message": "CUDA out of memory"})), Failed, "upstream_error", "CUDA out of memory"),
        (stream(event({"error": {"message": "bad", "type": "invalid_request_error"}})), Rejected, "invalid_value", "bad"),
        (stream(event(ROLE)), Failed, "upstream_empty", "without any output"),
        (stream(event(ROLE), DONE), Failed, "upstream_empty", "without any output"),
        (stream(), Failed, "upstream_empty", "without any output"),
        (stream(b"data: {broken\n\n"), Failed, "upstream_protocol_error", "not JSON"),
        (stream(b"data: 1\n\n"), Failed, "upstream_protocol_error", "not a JSON object"),
        (stream(b'data: {"a":' + b"[" * 5000 + b"\n\n"), Failed, "upstream_protocol_error", "not JSON"),
        (stream(event(ROLE), Reset()), Failed, "upstream_connection_lost", "lost"),
        (json_answer(ERROR), Failed, "upstream_error", "CUDA out of memory"),
        (json_answer({"choices": []}), Failed, "upstream_protocol_error", "application/json"),
    ],
)
async def test_what_breaks_before_the_first_output_is_raised(rig: Rig, script, kind, code, message) -> None:
    backend, _ = await rig(script)
    with pytest.raises(kind, match=message) as caught:
        await backend.forward(forwarded())
    assert caught.value.code == code
    assert (await backend.health()).running == 0


BEGUN = event(ROLE) + event(chunk({"content": "a"}))


@pytest.mark.parametrize(
    ("rest", "code"),
    [
        ([event(ERROR)], "upstream_error"),
        ([event(ERROR) + DONE], "upstream_error"),
        ([], "upstream_protocol_error"),
        ([b'data: {"id":"c1","cho'], "upstream_protocol_error"),
        ([b"data: {broken\n\n"], "upstream_protocol_error"),
        ([b"data: " + b"x" * 5000], "upstream_protocol_error"),
        ([Pause(0.05), Reset()], "upstream_connection_lost"),
        ([Pause(5)], "upstream_timeout"),
    ],
)
async def test_what_breaks_later_becomes_an_error_event(rig: Rig, rest, code) -> None:
    backend, _ = await rig(stream(BEGUN, *rest), between_tokens_timeout_s=0.3, max_response_bytes=4096)
    answer = await backend.forward(forwarded())
    seen = events(await read_all(answer))
    assert seen[:-1] == events(BEGUN + DONE)
    assert seen[-1]["error"]["code"] == code == answer.error.code
    assert set(seen[-1]["error"]) == {"message", "type", "param", "code"}


async def test_output_and_error_in_one_piece_are_both_shown(rig: Rig) -> None:
    backend, _ = await rig(stream(BEGUN + event(ERROR)))
    seen = events(await forward(backend))
    assert seen[1]["choices"][0]["delta"]["content"] == "a"
    assert "error" in seen[2]


async def test_no_output_in_time_is_a_timeout_though_comments_come(rig: Rig) -> None:
    pings = [step for _ in range(100) for step in (b": ping\n\n", Pause(0.02))]
    backend, upstream = await rig(stream(event(ROLE), *pings), first_token_timeout_s=0.2)
    with pytest.raises(TimedOut, match=r"no output within 0\.2 s"):
        await backend.forward(forwarded())
    await asyncio.wait_for(upstream.gone.wait(), 5)


async def test_comments_do_not_keep_a_stalled_stream_alive(rig: Rig) -> None:
    pings = [step for _ in range(200) for step in (b": ping\n\n", Pause(0.02))]
    backend, _ = await rig(stream(BEGUN, *pings), between_tokens_timeout_s=0.2)
    assert "no further output within 0.2 s" in events(await forward(backend))[-1]["error"]["message"]


async def test_an_endless_stream_is_cut_at_the_total_timeout(rig: Rig) -> None:
    text = event(chunk({"content": "x"}))
    backend, upstream = await rig(
        stream(BEGUN, *[step for _ in range(500) for step in (text, Pause(0.01))]), total_timeout_s=0.3
    )
    assert "did not finish within 0.3 s" in events(await forward(backend))[-1]["error"]["message"]
    await asyncio.wait_for(upstream.gone.wait(), 5)


async def test_endless_chunks_without_output_are_cut(rig: Rig) -> None:
    backend, _ = await rig(stream(event(ROLE) * 200, Close()), max_response_bytes=4096)
    with pytest.raises(Failed, match="without any output"):
        await backend.forward(forwarded())


async def test_closing_early_closes_the_connection_upstream(rig: Rig) -> None:
    backend, upstream = await rig(stream(BEGUN, Pause(60)))
    answer = await backend.forward(forwarded())
    assert (await backend.health()).running == 1
    await answer.aclose()
    await asyncio.wait_for(upstream.gone.wait(), 5)
    assert (await backend.health()).running == 0


async def test_cancelling_before_the_first_output_closes_the_connection_upstream(rig: Rig) -> None:
    backend, upstream = await rig(stream(event(ROLE), Pause(60)))
    task = asyncio.create_task(backend.forward(forwarded()))
    async with asyncio.timeout(5):
        while not (await backend.health()).running:  # noqa: ASYNC110 - all that a backend offers
            await asyncio.sleep(0.005)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await upstream.gone.wait()
    assert (await backend.health()).running == 0


async def test_closing_the_backend_ends_a_stream_with_an_error_event(rig: Rig) -> None:
    never = asyncio.Event()
    backend, _ = await rig(stream(BEGUN, Until(never)))
    answer = await backend.forward(forwarded())
    reading = asyncio.create_task(read_all(answer))
    await asyncio.sleep(0)
    await backend.close()
    assert events(await reading)[-1]["error"]["code"] == "model_unavailable"
    with pytest.raises(Unavailable):
        await backend.forward(forwarded())
