"""Batches through the official SDK, with lines that go through a whole gateway."""

import json
import time
from collections.abc import Callable
from typing import Any

import httpx
import openai
import pytest
from openai.types import Batch

OpenSdk = Callable[[str], openai.OpenAI]

CHAT = {"model": "fake", "messages": [{"role": "user", "content": "hi"}]}
BODIES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": CHAT,
    "/v1/completions": {"model": "fake", "prompt": "hi"},
    "/v1/embeddings": {"model": "fake", "input": "hi"},
    "/v1/responses": {"model": "fake", "input": "hi"},
}


def upload(sdk: openai.OpenAI, endpoint: str, *bodies: dict[str, Any]) -> str:
    lines = [
        json.dumps({"custom_id": f"r{n}", "method": "POST", "url": endpoint, "body": body}) for n, body in enumerate(bodies)
    ]
    return sdk.files.create(file=("in.jsonl", "\n".join(lines).encode()), purpose="batch").id


def ended(sdk: openai.OpenAI, batch: Batch) -> Batch:
    for _ in range(1000):
        batch = sdk.batches.retrieve(batch.id)
        if batch.status in ("failed", "completed", "expired", "cancelled"):
            return batch
        time.sleep(0.01)
    raise AssertionError(f"{batch} does not end")


@pytest.mark.parametrize("endpoint", BODIES)
def test_a_batch_is_answered_like_single_requests(sdk: openai.OpenAI, endpoint: str) -> None:
    body = BODIES[endpoint]
    file = upload(sdk, endpoint, body, body | {"model": "nobody"}, body)
    batch = sdk.batches.create(
        input_file_id=file,
        endpoint=endpoint,  # type: ignore[arg-type]
        completion_window="24h",
        metadata={"name": "nightly"},
        output_expires_after={"anchor": "created_at", "seconds": 3600},
    )
    assert (batch.object, batch.status, batch.endpoint, batch.metadata) == (
        "batch",
        "validating",
        endpoint,
        {"name": "nightly"},
    )
    batch = ended(sdk, batch)
    assert batch.status == "completed"
    assert batch.request_counts is not None
    assert batch.request_counts.to_dict() == {"total": 3, "completed": 2, "failed": 1}
    assert None not in (batch.in_progress_at, batch.finalizing_at, batch.completed_at)
    assert batch.output_file_id
    assert batch.error_file_id
    for id, kind in ((batch.output_file_id, "output"), (batch.error_file_id, "error")):
        file_object = sdk.files.retrieve(id)
        assert (file_object.purpose, file_object.filename) == ("batch_output", f"{batch.id}_{kind}.jsonl")
        assert file_object.expires_at == file_object.created_at + 3600
    output = {line["custom_id"]: line for line in map(json.loads, sdk.files.content(batch.output_file_id).content.splitlines())}
    error = {line["custom_id"]: line for line in map(json.loads, sdk.files.content(batch.error_file_id).content.splitlines())}
    assert set(output) == {"r0", "r2"}
    assert all(line["response"]["status_code"] == 200 and line["error"] is None for line in output.values())
    assert set(error) == {"r1"}
    assert error["r1"]["response"]["status_code"] == 404
    assert error["r1"]["response"]["body"]["error"]["code"] == "model_not_found"


def test_the_answer_of_a_chat_is_whole(sdk: openai.OpenAI) -> None:
    file = upload(sdk, "/v1/chat/completions", CHAT)
    batch = ended(sdk, sdk.batches.create(input_file_id=file, endpoint="/v1/chat/completions", completion_window="24h"))
    assert batch.output_file_id
    (line,) = sdk.files.content(batch.output_file_id).content.split(b"\n")[:-1]
    body = json.loads(line)["response"]["body"]
    assert body["choices"][0]["message"]["content"] == "Hello, 世界!\u2028"
    assert body["usage"]["completion_tokens"] > 0
    assert batch.error_file_id is None


def test_a_wrong_file_fails_with_line_numbers(sdk: openai.OpenAI) -> None:
    file = upload(sdk, "/v1/completions", CHAT, CHAT)
    batch = ended(sdk, sdk.batches.create(input_file_id=file, endpoint="/v1/chat/completions", completion_window="24h"))
    assert batch.status == "failed"
    assert batch.failed_at is not None
    assert batch.errors is not None
    assert [(error.line, error.code) for error in batch.errors.data or ()] == [(1, "url_mismatch"), (2, "url_mismatch")]


def test_a_batch_can_be_cancelled(sdk: openai.OpenAI) -> None:
    file = upload(sdk, "/v1/chat/completions", *[CHAT] * 3000)
    batch = sdk.batches.create(input_file_id=file, endpoint="/v1/chat/completions", completion_window="24h")
    assert sdk.batches.cancel(batch.id).status == "cancelling"
    batch = ended(sdk, batch)
    assert batch.status == "cancelled"
    assert batch.cancelled_at is not None
    with pytest.raises(openai.ConflictError, match="'cancelled' cannot be cancelled"):
        sdk.batches.cancel(batch.id)


def test_lists_are_cut_into_pages(sdk: openai.OpenAI) -> None:
    file = upload(sdk, "/v1/chat/completions", CHAT)
    made = []
    for _ in range(4):
        made.append(sdk.batches.create(input_file_id=file, endpoint="/v1/chat/completions", completion_window="24h"))
        ended(sdk, made[-1])
    ids = [batch.id for batch in made][::-1]
    assert [batch.id for batch in sdk.batches.list(limit=2)] == ids
    page = sdk.batches.list(limit=2, after=ids[0])
    assert ([batch.id for batch in page.data], page.has_more) == (ids[1:3], True)


def test_nobody_sees_the_batches_of_another(open_sdk: OpenSdk) -> None:
    ann, bob = open_sdk("ann"), open_sdk("bob")
    file = upload(ann, "/v1/chat/completions", CHAT)
    with pytest.raises(openai.NotFoundError, match="No file has the id") as caught:
        bob.batches.create(input_file_id=file, endpoint="/v1/chat/completions", completion_window="24h")
    assert caught.value.param == "input_file_id"
    batch = ann.batches.create(input_file_id=file, endpoint="/v1/chat/completions", completion_window="24h")
    for ask in (bob.batches.retrieve, bob.batches.cancel):
        with pytest.raises(openai.NotFoundError, match="No batch has the id"):
            ask(batch.id)
    assert list(bob.batches.list()) == []
    output = ended(ann, batch).output_file_id
    assert output
    with pytest.raises(openai.NotFoundError):
        bob.files.content(output)


def test_results_are_no_input(sdk: openai.OpenAI) -> None:
    file = upload(sdk, "/v1/chat/completions", CHAT)
    batch = ended(sdk, sdk.batches.create(input_file_id=file, endpoint="/v1/chat/completions", completion_window="24h"))
    assert batch.output_file_id
    with pytest.raises(openai.BadRequestError, match="purpose 'batch_output'"):
        sdk.batches.create(input_file_id=batch.output_file_id, endpoint="/v1/chat/completions", completion_window="24h")


GOOD = {"input_file_id": "file-1", "endpoint": "/v1/embeddings", "completion_window": "24h"}


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"endpoint": "/v1/moderations"}, "endpoint"),
        ({"endpoint": "/v1/batches"}, "endpoint"),
        ({"completion_window": "1h"}, "completion_window"),
        ({"input_file_id": ""}, "input_file_id"),
        ({"input_file_id": 1}, "input_file_id"),
        ({"metadata": {"x": 1}}, "metadata[...]"),
        ({"output_expires_after": {"anchor": "created_at", "seconds": 1}}, "output_expires_after.seconds"),
        ({"other": 1}, "other"),
    ],
)
def test_a_wrong_request_is_refused(http: httpx.Client, change: dict[str, Any], param: str) -> None:
    answer = http.post("/v1/batches", json=GOOD | change)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)


def test_an_unknown_file_is_refused(http: httpx.Client) -> None:
    answer = http.post("/v1/batches", json=GOOD)
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "file_not_found")
