"""Merging changes how many deltas there are, and nothing that a reader can add up."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.child.parent.mailbox import Mailbox, merge
from backends.errors import Failed
from backends.types import Delta, TokenLogprob, ToolCallDelta, Usage


@st.composite
def streams(draw: st.DrawFn) -> list[Delta]:
    """A whole answer of up to three choices, interleaved in any way."""
    n = draw(st.integers(1, 3))
    choices = [draw(st.lists(st.sampled_from(["text", "call", "arguments", "logprob"]), max_size=8)) for _ in range(n)]
    left = {index: [*kinds, "end"] for index, kinds in enumerate(choices)}
    calls = dict.fromkeys(left, -1)
    deltas = []
    while left:
        index = draw(st.sampled_from(sorted(left)))
        kind = left[index].pop(0)
        if not left[index]:
            del left[index]
        number = str(len(deltas))
        match kind:
            case "text":
                deltas.append(Delta(index, f"t{number} ", 1))
            case "logprob":
                deltas.append(Delta(index, f"p{number} ", 1, logprobs=(TokenLogprob(len(deltas), b"p", -1.0),)))
            case "end":
                usage = None if left else Usage(3, len(deltas))
                deltas.append(Delta(index, finish="stop", usage=usage))
            case _:
                if kind == "call" or calls[index] < 0:
                    calls[index] += 1
                    call = ToolCallDelta(calls[index], f"id{number}", f"name{number}")
                else:
                    call = ToolCallDelta(calls[index], arguments=number)
                deltas.append(Delta(index, tokens=1, tool_calls=(call,)))
    return deltas


def told(deltas: list[Delta]) -> dict[int, list[object]]:
    """What a reader of each choice is told, in order, with neighbours of the same kind put together."""
    story: dict[int, list[object]] = {}
    for delta in deltas:
        parts = story.setdefault(delta.index, [])
        if delta.text:
            if parts and isinstance(parts[-1], str):
                parts[-1] += delta.text
            else:
                parts.append(delta.text)
        for call in delta.tool_calls:
            if call.id is None and parts and isinstance(parts[-1], ToolCallDelta) and parts[-1].index == call.index:
                parts[-1] = ToolCallDelta(call.index, parts[-1].id, parts[-1].name, parts[-1].arguments + call.arguments)
            else:
                parts.append(call)
        if delta.finish:
            parts.append((delta.finish,))
    return story


@given(streams(), st.data())
def test_a_merged_answer_tells_the_same(deltas: list[Delta], data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(deltas) - 1))
    merged = [*deltas[:start], *merge(deltas[start:])]
    assert told(merged) == told(deltas)
    for index in {delta.index for delta in deltas}:
        for field in ("tokens", "logprobs"):
            before, after = [[getattr(d, field) for d in some if d.index == index] for some in (deltas, merged)]
            zero = 0 if field == "tokens" else ()
            assert sum(before, zero) == sum(after, zero)
    assert merged[-1].usage == deltas[-1].usage
    assert all(delta.usage is None for delta in merged[:-1])


def test_neighbours_of_one_choice_become_one_delta() -> None:
    deltas = [Delta(index, f"{number}", 1) for number in range(5) for index in range(2)]
    assert merge(deltas) == [Delta(0, "01234", 5), Delta(1, "01234", 5)]


def test_text_behind_a_call_stays_behind_it() -> None:
    call = Delta(tool_calls=(ToolCallDelta(0, "id", "name"),))
    assert merge([call, Delta(text="after")]) == [call, Delta(text="after")]


async def test_an_error_comes_after_what_was_there_before() -> None:
    mailbox = Mailbox()
    mailbox.put(Delta(text="a"))
    mailbox.fail(Failed("broken"))
    assert [delta.text for delta in await mailbox.take()] == ["a"]
    with pytest.raises(Failed):
        await mailbox.take()


async def test_a_waiting_reader_is_woken_and_a_cancelled_one_forgotten() -> None:
    mailbox = Mailbox()
    reader = asyncio.create_task(mailbox.take())
    await asyncio.sleep(0)
    reader.cancel()
    await asyncio.wait({reader})
    reader = asyncio.create_task(mailbox.take())
    await asyncio.sleep(0)
    mailbox.put(Delta(text="a"))
    mailbox.put(Delta(text="b"))
    assert [delta.text for delta in await reader] == ["ab"]
