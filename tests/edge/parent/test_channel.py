"""The socket by itself: no reply is overlooked though its descriptor is edge-triggered, and no cancellation is lost."""

import asyncio
import random
from collections.abc import Iterator

import pytest
import zmq

from edge import channel as module
from edge.channel import Channel, ChannelFull
from edge.messages import Cancel, Detokenize, Detokenized, Reply, command_decoder, encoder


class Ends:
    """A channel, and the child's end of it as a plain socket of the same process."""

    def __init__(self, context: zmq.Context) -> None:
        self.replies: list[Reply] = []
        self.garbage: list[str] = []
        self.arrived = asyncio.Event()
        self.channel = Channel(context, self._receive, self._receive_garbage)
        self.child = context.socket(zmq.PAIR)
        self.child.setsockopt(zmq.LINGER, 0)
        self.child.setsockopt(zmq.RCVTIMEO, 10_000)
        self.child.setsockopt(zmq.RCVHWM, 10)
        self.child.connect(self.channel.address)
        self.tell(0)

    def _receive(self, reply: Reply) -> None:
        self.replies.append(reply)
        self.arrived.set()

    def _receive_garbage(self, what: str) -> None:
        self.garbage.append(what)
        self.arrived.set()

    def tell(self, number: int) -> None:
        self.child.send(encoder.encode(Detokenized(number, "")))

    async def until(self, count: int) -> None:
        async with asyncio.timeout(10):
            while len(self.replies) < count:
                self.arrived.clear()
                await self.arrived.wait()

    def close(self) -> None:
        self.child.close(0)
        self.channel.close()


@pytest.fixture
def context() -> Iterator[zmq.Context]:
    context = zmq.Context()
    yield context
    context.destroy(0)


async def test_no_reply_is_overlooked_when_sends_and_replies_cross(context) -> None:
    ends = Ends(context)
    await ends.until(1)
    rng, told = random.Random(1), 1
    for _ in range(300):
        # Without further traffic: a reply whose wake-up got lost would stay unseen.
        for _ in range(rng.randrange(1, 4)):
            ends.tell(told)
            told += 1
            if rng.random() < 0.8:
                ends.channel.send(Cancel(0))
        await ends.until(told)
    assert [reply.id for reply in ends.replies] == list(range(told))
    ends.close()


async def test_a_reply_is_seen_although_a_send_took_its_wake_up(context) -> None:
    ends = Ends(context)
    await ends.until(1)
    ends.tell(1)
    # Until ZeroMQ itself has seen the reply, inside of sends, with the event loop standing still.
    for _ in range(100_000):
        ends.channel.send(Cancel(0))
        ends.child.recv()
        if ends.channel._drain_is_scheduled:
            break
    await ends.until(2)
    ends.close()


async def test_a_flood_is_read_completely_and_others_get_their_turn(context) -> None:
    ends = Ends(context)
    await ends.until(1)
    for number in range(1, 1000):
        ends.tell(number)
    longest = turn = 1
    while len(ends.replies) < 1000:
        before = len(ends.replies)
        await asyncio.sleep(0)
        turn = len(ends.replies) - before
        longest = max(longest, turn)
    assert longest <= 2 * module._MAX_REPLIES_PER_WAKE_UP
    ends.close()


async def test_a_child_that_does_not_read_gets_no_more_requests_but_every_cancel_in_the_end(context, monkeypatch) -> None:
    monkeypatch.setattr(module, "_MAX_WAITING_COMMANDS", 10)
    ends = Ends(context)
    await ends.until(1)
    sent = 0
    filler = tuple(range(10_000))  # so that the kernel's buffers fill, too
    while True:
        try:
            ends.channel.send(Detokenize(sent, filler))
        except ChannelFull:
            break
        sent += 1
    for number in range(5):
        ends.channel.send_surely(Cancel(number))
    with pytest.raises(ChannelFull):
        ends.channel.send(Detokenize(sent, ()))
    seen = []
    async with asyncio.timeout(10):
        while len(seen) < sent + 5:
            try:
                seen.append(command_decoder.decode(ends.child.recv(zmq.DONTWAIT)))
            except zmq.Again:
                await asyncio.sleep(0)
    assert [command.id for command in seen] == [*range(sent), *range(5)]
    ends.close()


async def test_garbage_is_told_once_and_nothing_is_read_after_it(context) -> None:
    ends = Ends(context)
    await ends.until(1)
    ends.arrived.clear()
    for data in (b"\xff", b"\xff", encoder.encode(Detokenized(1, ""))):
        ends.child.send(data)
    await ends.arrived.wait()
    ends.channel.send(Cancel(0))
    ends.child.recv()
    await asyncio.sleep(0)
    assert (len(ends.garbage), len(ends.replies)) == (1, 1)
    ends.close()


async def test_the_end_of_the_connection_comes_after_all_replies(context) -> None:
    ends = Ends(context)
    await ends.until(1)
    for number in range(1, 50):
        ends.tell(number)
    ends.child.close(10_000)
    await ends.channel.disconnected(10)
    while ends.channel.drain():
        pass
    assert len(ends.replies) == 50
    ends.close()
