"""Which stop string ended an answer travels with the last delta of its choice, through every hop."""

import pytest

from backends.child.parent.mailbox import merge
from backends.fake import FakeBackend, FakeModel
from backends.fake_script import FakeReply
from backends.text.answer import Answer
from backends.text.tool_parser import ToolFormat
from backends.types import Chat, Delta, FinishReason, GenerateRequest, Message, Usage


def finished(pieces: list[bytes], stops: list[str], reason: FinishReason, tool_format: ToolFormat | None = None) -> Delta:
    answer = Answer(0, stops, tool_format, ("f",))
    for token, piece in enumerate(pieces):
        delta = answer.push(token, piece)
        assert delta is None or delta.stop is None
        if answer.stopped:
            return answer.finish("stop")
    return answer.finish(reason)


@pytest.mark.parametrize("tool_format", [None, "hermes"])
def test_the_last_delta_names_the_stop_string(tool_format: ToolFormat | None) -> None:
    assert finished([b"a", b"EN", b"D b"], ["STOP", "END"], "stop", tool_format).stop == "END"
    assert finished([b"a", b"EN"], ["STOP", "END"], "stop", tool_format).stop is None
    assert finished([b"a"], [], "length", tool_format).stop is None


async def test_each_choice_of_the_scripted_backend_names_its_own() -> None:
    backend = FakeBackend("m", FakeModel(replies=(FakeReply(text="a,b"), FakeReply(text="a.b"), FakeReply(text="ab"))))
    request = GenerateRequest(
        id="i",
        model="m",
        prompt=Chat(messages=(Message(role="user", content="hi"),)),
        n=3,
        stop=(".", ","),
        stop_token_ids=(255,),
    )
    stops = {delta.index: (delta.finish, delta.stop) async for delta in backend.generate(request) if delta.finish}
    assert stops == {0: ("stop", ","), 1: ("stop", "."), 2: ("stop", None)}
    only_token = GenerateRequest(id="i", model="m", prompt=request.prompt, stop_token_ids=(ord(","),))
    assert [delta.stop async for delta in backend.generate(only_token)][-1] is None


def test_merging_for_a_slow_reader_keeps_the_stop_string_and_the_order() -> None:
    usage = Usage(1, 2)
    merged = merge([Delta(reasoning="x"), Delta(reasoning="y"), Delta(text="a"), Delta(finish="stop", usage=usage, stop=".")])
    assert merged == [Delta(reasoning="xy", text="a", finish="stop", usage=usage, stop=".")]
    assert len(merge([Delta(text="a"), Delta(reasoning="x")])) == 2
