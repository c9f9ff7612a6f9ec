"""Anthropic's SDK through the whole gateway, which answers it from models that only speak OpenAI's API."""

import anthropic
import pytest

from tests.integration.conftest import TEXT

HI = [{"role": "user", "content": "hi"}]
TOOLS = [{"name": "weather", "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}}}]


def test_create(anthropic_client: anthropic.Anthropic, place: str) -> None:
    answer = anthropic_client.messages.create(model=f"{place}plain", max_tokens=100, messages=HI, system="Be kind.")
    assert [(block.type, block.text) for block in answer.content] == [("text", TEXT)]
    assert (answer.model, answer.stop_reason) == (f"{place}plain", "end_turn")
    assert answer.usage.output_tokens == len(TEXT.encode())
    assert answer.usage.input_tokens > 0


def test_stream(anthropic_client: anthropic.Anthropic, place: str) -> None:
    with anthropic_client.messages.stream(model=f"{place}plain", max_tokens=100, messages=HI) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert text == TEXT
    assert (final.content[0].text, final.stop_reason) == (TEXT, "end_turn")
    assert final.usage.output_tokens == len(TEXT.encode())


@pytest.mark.parametrize("streams", [False, True], ids=["whole", "stream"])
def test_tool_use_and_its_result(anthropic_client: anthropic.Anthropic, place: str, streams: bool) -> None:
    messages, model = anthropic_client.messages, f"{place}tools"
    if streams:
        with messages.stream(model=model, max_tokens=500, messages=HI, tools=TOOLS) as stream:
            answer = stream.get_final_message()
    else:
        answer = messages.create(model=model, max_tokens=500, messages=HI, tools=TOOLS)
    text, call = answer.content
    assert (answer.stop_reason, text.text) == ("tool_use", "Let me see.")
    assert (call.name, call.input) == ("weather", {"city": "Köln"})
    result = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call.id, "content": "rain"}]}
    turns = [*HI, {"role": "assistant", "content": answer.content}, result]
    after = messages.create(model=model, max_tokens=500, messages=turns, tools=TOOLS)
    assert after.content[0].text == "It rains."


def test_the_budget_ends_an_answer(anthropic_client: anthropic.Anthropic, place: str) -> None:
    answer = anthropic_client.messages.create(model=f"{place}plain", max_tokens=5, messages=HI)
    assert (answer.content[0].text, answer.stop_reason, answer.usage.output_tokens) == ("Hello", "max_tokens", 5)


def test_errors_are_the_sdk_s_own(anthropic_client: anthropic.Anthropic) -> None:
    with pytest.raises(anthropic.NotFoundError):
        anthropic_client.messages.create(model="nobody", max_tokens=5, messages=HI)
    with anthropic_client.with_options(api_key="bob") as stranger, pytest.raises(anthropic.AuthenticationError):
        stranger.messages.create(model="plain", max_tokens=5, messages=HI)
