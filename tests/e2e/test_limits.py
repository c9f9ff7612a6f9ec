"""What happens at the edges of a small engine: 512 cells, two slots, a queue of two."""

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import pytest

from tests.e2e.gateway_process import CHAT, Server, eventually
from tests.e2e.scores import Scores, difference, scores_of

ALICE = {"authorization": "Bearer alice"}


@contextmanager
def occupied(server: Server, count: int) -> Iterator[None]:
    """Keep `count` choices in the engine, as streams that nobody reads."""
    options = {"max_tokens": 200, "ignore_eos": True, "stream": True, "key": "alice"}
    connections = [server.open(f"Story {number}", **options) for number in range(count)]
    try:
        eventually(lambda: sum(server.load()) == count, f"{count} choices run or wait")
        yield
    finally:
        for connection in connections:
            connection.close()
    server.wait_until_idle()


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        (CHAT, {"messages": [{"role": "user", "content": "word " * 700}]}, "messages"),
        ("/v1/completions", {"prompt": "word " * 700, "max_tokens": 4}, "prompt"),
        (CHAT, {"messages": [{"role": "user", "content": "x" * 1_000_000}]}, "messages"),
    ],
)
def test_context_overflow_is_refused_before_the_stream_with_both_numbers(
    small: Server, path: str, body: dict, param: str, stream: bool
) -> None:
    answer = small.http.post(path, json=body | {"stream": stream}, headers=ALICE)
    assert answer.status_code == 400
    assert answer.headers["content-type"] == "application/json"
    error = answer.json()["error"]
    assert (error["code"], error["param"]) == ("context_length_exceeded", param)
    assert "512" in error["message"]
    assert any(int(number) > 700 for number in re.findall(r"\d+", error["message"])), error["message"]


@pytest.mark.parametrize(
    ("value", "code", "param"),
    [
        ("word " * 3000, "context_length_exceeded", "input"),
        (["word", "word " * 3000], "context_length_exceeded", "input[1]"),
        ("x" * 1_000_000, "context_length_exceeded", "input"),
        ([[1], [999_999]], "invalid_value", "input[1]"),
    ],
)
def test_what_cannot_be_embedded_is_refused_with_the_name_of_the_input(
    small: Server, value: object, code: str, param: str
) -> None:
    answer = small.http.post("/v1/embeddings", json={"input": value}, headers=ALICE)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["param"]) == (400, code, param)


def test_an_answer_ends_with_length_where_the_context_does(small: Server) -> None:
    answer = small.chat("word " * 420, key="alice", max_tokens=None, ignore_eos=True).json()
    assert answer["choices"][0]["finish_reason"] == "length"
    assert answer["usage"]["total_tokens"] == 512


def test_full_queue_is_refused_with_when_to_come_back(small: Server) -> None:
    with occupied(small, 4):
        for stream in (False, True):
            refused = small.chat(key="bob", stream=stream)
            assert refused.status_code == 503
            assert refused.json()["error"]["code"] == "engine_overloaded"
            assert int(refused.headers["retry-after"]) >= 1
            assert "full: 0 requests may wait" in refused.json()["error"]["message"]
    assert small.chat(key="bob").status_code == 200


def test_more_choices_than_there_will_ever_be_room_for(small: Server) -> None:
    refused = small.chat(key="alice", n=5)
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "n")


def test_dropped_requests_in_the_queue_never_run(small: Server) -> None:
    small.wait_until_idle()
    with occupied(small, 2):
        # What the two are computing is known; whatever else is computed, a dropped one computed.
        before = small.metric("baton_engine_prompt_tokens_total", key="alice")
        for _ in range(5):
            with pytest.raises(httpx.ReadTimeout):
                small.http.post(
                    CHAT,
                    json={"messages": [{"role": "user", "content": "unwanted " * 100}], "max_tokens": 4},
                    headers={"authorization": "Bearer bob"},
                    timeout=httpx.Timeout(5, read=0.2),
                )
        eventually(lambda: small.load()[1] == 0, "the dropped ones have left the queue")
        assert small.load()[0] == 2, "the two that run are gone: nothing was shown"
    # One more request, so that the last heartbeat is from after any of them could have run.
    assert small.chat("x", key="alice", max_tokens=1).status_code == 200
    eventually(lambda: small.load() == (0, 0), "all have ended")
    assert small.metric("baton_engine_prompt_tokens_total", key="alice") - before < 100


def test_more_text_than_cells_is_preempted_and_does_not_change(small: Server) -> None:
    def ask(number: int) -> Scores:
        prompt = f"This is story number {number}. " + "It goes on and on. " * 34
        options = {"max_tokens": 60, "ignore_eos": True, "logprobs": True, "top_logprobs": 5}
        return scores_of(small.chat(prompt, key="alice", **options))

    quiet = [ask(number) for number in range(2)]
    small.wait_until_idle()
    before = small.metric("baton_engine_preemptions_total", key="alice")
    together: dict[int, Scores] = {}
    threads = [threading.Thread(target=lambda n=n: together.update({n: ask(n)})) for n in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number in range(2):
        assert len(together[number]) == 60
        assert difference(quiet[number], together[number]) is None
    small.wait_until_idle()
    assert small.metric("baton_engine_preemptions_total", key="alice") > before, "nothing was preempted: nothing was shown"


def test_unread_stream_ends_whole_for_a_slow_reader(small: Server) -> None:
    body = {"messages": [{"role": "user", "content": "Count."}], "max_tokens": 12, "ignore_eos": True, "stream": True}
    with small.http.stream("POST", CHAT, json=body, headers=ALICE) as response:
        small.wait_until_idle()  # the engine does not wait for the reader
        lines = [line for line in response.iter_lines() if line]
    assert lines[-1] == "data: [DONE]"
    chunks = [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]
    assert chunks[-1]["choices"][0]["finish_reason"] == "length"
