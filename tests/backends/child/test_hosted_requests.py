"""What a request gets from a healthy child, and what is left of it when its reader goes away."""

import asyncio
import gc
import os
from contextlib import aclosing

import pytest

from backends.child.parent.mailbox import Mailbox
from backends.errors import ContextOverflow, ModelNotFound, Overloaded, Rejected, Unavailable
from backends.protocol import Backend
from backends.types import EmbedRequest, JsonSchemaFormat, Text, TokenizeRequest
from tests.backends.child.conftest import NAME, ask, commands, play, ready, text_of, until


async def test_is_a_backend_whose_health_and_card_come_from_the_child(start, model_file) -> None:
    backend = await start()
    assert isinstance(backend, Backend)
    await ready(backend)
    health = await until(backend, lambda health: bool(health.gauges))
    assert (health.slots, health.gauges) == (2, {"kv_cells_used": 7.0})
    (card,) = await backend.models()
    assert (card.id, card.architecture) == (NAME, "scripted")
    assert card.created == int(os.stat(model_file).st_mtime)  # not when this child was started


async def test_before_it_is_loaded_the_card_comes_from_the_file(start) -> None:
    backend = await start("--load", "never")
    await until(backend, lambda health: bool(health.counters["starts_total"]))
    (card,) = await backend.models()
    assert (card.id, card.architecture, card.context_length) == (NAME, "described", 64)
    with pytest.raises(Unavailable) as caught:
        await play(backend, "say 1")
    assert caught.value.retry_after_s >= 1
    assert "loading" in caught.value.message


async def test_all_choices_arrive_in_order_and_usage_comes_last(start) -> None:
    backend = await start()
    await ready(backend)
    deltas = await play(backend, "say 20", n=3)
    for index in range(3):
        assert text_of(deltas, index) == "".join(f"{number} " for number in range(20))
    assert [delta.usage is not None for delta in deltas] == [False] * (len(deltas) - 1) + [True]
    assert deltas[-1].usage.completion_tokens == sum(delta.tokens for delta in deltas) == 60


async def test_what_waits_for_a_slow_reader_is_merged_without_loss(start) -> None:
    backend = await start()
    await ready(backend)
    deltas = await play(backend, "flood 1000", n=2)
    assert len(deltas) == 2
    assert text_of(deltas, 0) == text_of(deltas, 1) == "".join(f"{number} " for number in range(1000))
    assert deltas[-1].usage.completion_tokens == 2000


async def test_embed_tokenize_and_detokenize_are_answered(start) -> None:
    backend = await start()
    await ready(backend)
    embeddings = await backend.embed(EmbedRequest(id="e", model=NAME, inputs=(Text("a"),)))
    assert embeddings.vectors == (b"\0\0\x80?",)
    tokens = await backend.tokenize(TokenizeRequest(model=NAME, prompt=Text("ab")))
    assert tokens.pieces == (b"a", b"b")
    assert await commands(backend) == ["Embed 1", "Tokenize 2"]


async def test_an_error_of_the_child_is_raised_as_itself(start) -> None:
    backend = await start()
    await ready(backend)
    with pytest.raises(ContextOverflow, match="200 tokens"):
        await play(backend, "error")
    assert "Cancel 1" not in await commands(backend)


async def test_another_model_is_not_found(start) -> None:
    backend = await start()
    await ready(backend)
    with pytest.raises(ModelNotFound):
        await play(backend, "say 1", model="other")


async def test_what_messagepack_cannot_say_is_refused_and_holds_no_room(start) -> None:
    backend = await start(queue=0)
    await ready(backend)
    for _ in range(3):
        with pytest.raises(Rejected, match="OverflowError"):
            await play(backend, "say 1", n=2, response_format=JsonSchemaFormat({"maximum": 1 << 70}))
        with pytest.raises(Rejected, match="UnicodeEncodeError"):
            await play(backend, "say \ud800", n=2)
    assert await play(backend, "say 1", n=2)


async def test_a_finished_answer_is_not_cancelled(start) -> None:
    backend = await start()
    await ready(backend)
    await play(backend, "say 3")
    async with aclosing(backend.generate(ask("flood 3"))) as deltas:
        async for _ in deltas:
            break  # the end has arrived, unread
    assert await commands(backend) == ["Generate 1", "Generate 2"]


async def test_closing_in_the_middle_sends_one_cancel(start) -> None:
    backend = await start()
    await ready(backend)
    deltas = backend.generate(ask("say 1000000"))
    await anext(deltas)
    await deltas.aclose()
    await deltas.aclose()
    assert await commands(backend) == ["Generate 1", "Cancel 1"]
    await until(backend, lambda health: health.running == 0)


async def test_cancelling_before_the_first_token_sends_one_cancel(start) -> None:
    backend = await start()
    await ready(backend)
    task = asyncio.create_task(play(backend, "wait"))
    await until(backend, lambda health: health.running == 1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await commands(backend) == ["Generate 1", "Cancel 1"]


async def test_a_reader_that_never_began_sends_nothing(start) -> None:
    backend = await start()
    await ready(backend)
    await backend.generate(ask("say 5")).aclose()
    assert await commands(backend) == []


async def test_a_cancelled_embedding_sends_one_cancel(start) -> None:
    backend = await start()
    await ready(backend)
    task = asyncio.create_task(backend.embed(EmbedRequest(id="e", model=NAME, inputs=(Text("never"),))))
    await asyncio.sleep(0)  # lets it send; the next question then comes behind it
    assert await commands(backend) == ["Embed 1"]
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await commands(backend) == ["Embed 1", "Detokenize 2", "Cancel 1"]


async def test_beyond_slots_and_queue_is_overloaded_with_both_numbers(start) -> None:
    backend = await start()  # two slots, three may wait
    await ready(backend)
    tasks = [asyncio.create_task(play(backend, "wait", n=n)) for n in (2, 2)]
    await until(backend, lambda health: health.running == 2)
    with pytest.raises(Overloaded) as caught:
        await play(backend, "say 1", n=2)
    assert caught.value.retry_after_s > 0
    for number in ("2 slots", "queue of 3", "4 choices", "2 more"):
        assert number in caught.value.message
    assert await play(backend, "say 1", n=1)
    tasks[0].cancel()
    await asyncio.wait(tasks[:1])
    assert await play(backend, "say 1", n=3)
    tasks[1].cancel()
    await asyncio.wait(tasks)


async def test_more_choices_than_can_ever_run_or_wait_are_the_fault_of_the_request(start) -> None:
    backend = await start()
    await ready(backend)
    with pytest.raises(Rejected, match="'n' is 6") as caught:
        await play(backend, "say 1", n=6)
    assert caught.value.param == "n"


async def test_unanswered_tokenizations_are_bounded(start) -> None:
    backend = await start()
    await ready(backend)
    request = TokenizeRequest(model=NAME, prompt=Text("never"))
    tasks = [asyncio.create_task(backend.tokenize(request)) for _ in range(5)]
    await asyncio.sleep(0)
    with pytest.raises(Overloaded, match="5 embeddings and tokenizations"):
        await backend.tokenize(request)
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    assert await backend.detokenize(NAME, (0,))


async def test_200_aborted_streams_leave_nothing(start) -> None:
    backend = await start(queue=1000)
    await ready(backend)
    tasks_before = len(asyncio.all_tasks())
    for round_ in range(10):
        streams = [asyncio.create_task(play(backend, "say 1000000" if round_ % 2 else "wait")) for _ in range(20)]
        await until(backend, lambda health: health.running == 20)
        for stream in streams:
            stream.cancel()
        await asyncio.wait(streams)
        await until(backend, lambda health: health.running == 0)
    seen = await commands(backend)
    for kind in ("Generate", "Cancel"):
        assert len([command for command in seen if command.startswith(kind)]) == 200
    assert len(asyncio.all_tasks()) == tasks_before
    in_flight = backend._supervisor.life.in_flight
    assert (len(in_flight), in_flight.choices) == (0, 0)
    del stream, streams
    gc.collect()
    assert [thing for thing in gc.get_objects() if type(thing) is Mailbox] == []
