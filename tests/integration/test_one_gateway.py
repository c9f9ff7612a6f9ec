"""One configuration file, one address: an embedded model, a llama-server, and two upstreams under one name."""

import math
import time

import openai
import pytest

from tests.integration.conftest import KEY, TEXT, Stack

BACK_WITHIN_S = 5.0


@pytest.mark.parametrize("model", ["smol", "llama", "twins", "plain", "far-plain"])
@pytest.mark.parametrize("streams", [False, True], ids=["whole", "stream"])
def test_every_model_answers_and_says_who_did(stack: Stack, model: str, streams: bool) -> None:
    if model == "llama" and stack.llama is None:
        pytest.skip("llama-server is not built: make test")
    answer = stack.server.chat(key=KEY, model=model, stream=streams)
    assert answer.status_code == 200, answer.text
    served_by = answer.headers["x-baton-deployment"]
    assert served_by.startswith("twin-") if model == "twins" else served_by == model
    if streams:
        assert answer.text.rstrip().endswith("data: [DONE]")
    else:
        assert answer.json()["model"] == model
        assert answer.json()["choices"][0]["message"]["content"]


def test_models_are_those_that_may_be_asked_for(stack: Stack, openai_client: openai.OpenAI) -> None:
    listed = {model.id for model in openai_client.models.list()}
    assert {"smol", "twins", "short", "shaky", "plain", "tools", "json", "far-plain"} <= listed
    assert ("llama" in listed) == (stack.llama is not None)
    assert not {"twin-a", "twin-b"} & listed, "private deployments are no public names"
    with pytest.raises(openai.NotFoundError):
        openai_client.models.retrieve("twin-a")


def test_requests_without_the_key_are_refused(stack: Stack) -> None:
    assert stack.server.chat(model="plain").status_code == 401
    assert stack.server.chat(model="plain", key="bob").status_code == 401


def test_weights_are_kept(stack: Stack) -> None:
    asked = stack.ask_twins(120)
    spread = 4 * math.sqrt(120 * 0.75 * 0.25)
    assert abs(asked.count("twin-a") - 90) <= spread


def test_traffic_moves_away_from_a_killed_upstream_and_comes_back(stack: Stack) -> None:
    twin = stack.twins["twin-a"]
    twin.kill()
    assert set(stack.ask_twins(20)) == {"twin-b"}
    twin.start()
    twin.wait_until_ready()
    back_at = time.monotonic()
    while "twin-a" not in stack.ask_twins(1):
        assert time.monotonic() < back_at + BACK_WITHIN_S, f"no traffic {BACK_WITHIN_S} s after the return"
    assert abs(stack.ask_twins(40).count("twin-a") - 30) <= 4 * math.sqrt(40 * 0.75 * 0.25)
    assert time.monotonic() < back_at + BACK_WITHIN_S


def test_another_model_stands_in_and_the_header_says_so(stack: Stack) -> None:
    answer = stack.server.chat(key=KEY, model="shaky", max_tokens=100)
    assert answer.json()["choices"][0]["message"]["content"] == TEXT
    assert answer.headers["x-baton-deployment"] == "plain"
    assert answer.headers["x-baton-fallback"] == "plain"
    assert answer.headers["x-baton-fallback-reason"] == "model_unavailable"


def test_model_with_more_room_stands_in_for_a_long_prompt_only(stack: Stack) -> None:
    short = stack.server.chat("hi", key=KEY, model="short")
    long = stack.server.chat("hi" * 100, key=KEY, model="short", max_tokens=100)
    assert (short.status_code, short.headers["x-baton-deployment"]) == (200, "small")
    assert "x-baton-fallback" not in short.headers
    assert (long.status_code, long.headers["x-baton-deployment"]) == (200, "plain")
    assert long.headers["x-baton-fallback-reason"] == "context_length_exceeded"
