"""The Responses API passed on: named events, no `[DONE]`, errors in its own shape."""

import json

import pytest

from backends.errors import Failed
from backends.types import Usage
from tests.backends.remote.rig import Rig, forwarded, read_all
from tests.upstream import event, stream


def named(name: str, **fields: object) -> bytes:
    return f"event: {name}\n".encode() + event({"type": name} | fields)


CREATED = named("response.created", response={"model": "theirs"}, sequence_number=0)
DELTA = named("response.output_text.delta", delta="é漢", sequence_number=1)
USAGE = {"input_tokens": 5, "output_tokens": 2, "input_tokens_details": {"cached_tokens": 1}}
COMPLETED = named("response.completed", response={"model": "theirs", "usage": USAGE}, sequence_number=2)


async def test_named_events_pass_with_the_public_model_and_without_done(rig: Rig) -> None:
    backend, upstream = await rig(stream(CREATED, b": ping\n\n", DELTA, COMPLETED, b"data: [DONE]\n\n"))
    answer = await backend.forward(forwarded(path="/responses"))
    assert await read_all(answer) == (CREATED + DELTA + COMPLETED).replace(b"theirs", b"public")
    assert (answer.usage, answer.finish, answer.output_events) == (Usage(5, 2, 1), "stop", 1)
    assert "stream_options" not in upstream.requests[0].json()


async def test_events_without_a_name_line_get_one(rig: Rig) -> None:
    backend, _ = await rig(stream((CREATED + DELTA + COMPLETED).replace(b"event: ", b"id: ")))
    body = await read_all(await backend.forward(forwarded(path="/responses")))
    assert body == (CREATED + DELTA + COMPLETED).replace(b"theirs", b"public")


async def test_an_incomplete_response_ended_by_length(rig: Rig) -> None:
    backend, _ = await rig(stream(named("response.incomplete", response={"usage": USAGE})))
    answer = await backend.forward(forwarded(path="/responses"))
    assert (answer.finish, answer.usage) == ("length", Usage(5, 2, 1))
    await answer.aclose()


@pytest.mark.parametrize(
    "last", [named("error", message="boom"), named("response.failed", response={"error": {"message": "boom"}})]
)
async def test_a_failure_is_raised_before_the_first_output_and_passed_on_after_it(rig: Rig, last: bytes) -> None:
    backend, _ = await rig(stream(CREATED, last), stream(DELTA, last))
    with pytest.raises(Failed, match="boom"):
        await backend.forward(forwarded(path="/responses"))
    answer = await backend.forward(forwarded(path="/responses"))
    assert await read_all(answer) == DELTA + last
    assert answer.error.message == "boom"


async def test_a_stream_that_breaks_off_ends_with_an_error_event(rig: Rig) -> None:
    backend, _ = await rig(stream(CREATED, DELTA))
    body = await read_all(await backend.forward(forwarded(path="/responses")))
    name, data = body.removesuffix(b"\n\n").split(b"\n\n")[-1].split(b"\n")
    error = json.loads(data.removeprefix(b"data: "))
    assert name == b"event: error"
    assert (error["type"], error["code"], error["sequence_number"]) == ("error", "upstream_protocol_error", 2)


async def test_a_stream_without_any_output_is_raised(rig: Rig) -> None:
    backend, _ = await rig(stream(CREATED))
    with pytest.raises(Failed, match="without any output"):
        await backend.forward(forwarded(path="/responses"))
