"""The channel by itself: no reply is overlooked, no cancellation is lost, and nobody is kept waiting by a flood."""

import asyncio
import contextlib
import random
import socket
from collections.abc import AsyncIterator

import pytest

from backends.child.frames import FrameReader, frame
from backends.child.messages import Cancel, Command, Detokenize, Detokenized, Reply, command_decoder, encoder
from backends.child.parent import channel as module
from backends.child.parent.channel import Channel, ChannelFull


class Ends:
    """A channel, and the child's end of it as a plain socket of the same process."""

    def __init__(self) -> None:
        self.replies: list[Reply] = []
        self.garbage: list[str] = []
        self.commands: list[Command] = []
        self.arrived = asyncio.Event()
        ours, self.child = socket.socketpair()
        self.child.setblocking(False)
        self._frames = FrameReader()
        self.channel = Channel(ours, self._receive, self._receive_garbage)

    def _receive(self, reply: Reply) -> None:
        self.replies.append(reply)
        self.arrived.set()

    def _receive_garbage(self, what: str) -> None:
        self.garbage.append(what)
        self.arrived.set()

    def tell(self, *numbers: int) -> None:
        self.child.sendall(b"".join(frame(encoder.encode(Detokenized(number, ""))) for number in numbers))

    def hear(self) -> None:
        """Add what the child can read now to `commands`."""
        with contextlib.suppress(BlockingIOError):
            self.commands += map(command_decoder.decode, self._frames.feed(self.child.recv(1 << 16)))

    async def until(self, count: int) -> None:
        async with asyncio.timeout(10):
            while len(self.replies) + len(self.garbage) < count:
                self.arrived.clear()
                await self.arrived.wait()

    async def hear_until(self, count: int) -> None:
        async with asyncio.timeout(10):
            while len(self.commands) < count:
                self.hear()
                await asyncio.sleep(0)


@pytest.fixture
async def ends() -> AsyncIterator[Ends]:
    ends = Ends()
    yield ends
    ends.child.close()
    ends.channel.close()
    ends.channel.close()


def fill(channel: Channel) -> int:
    """Send until no more is taken; returns how many commands were."""
    filler = tuple(range(10_000))
    for sent in range(100_000):
        try:
            channel.send(Detokenize(sent, filler))
        except ChannelFull:
            return sent
    raise AssertionError("unbounded")


async def test_no_reply_is_overlooked_when_sends_and_replies_cross(ends) -> None:
    rng, told, sent = random.Random(1), 0, 0
    for _ in range(300):
        # Without further traffic: a reply whose wake-up got lost would stay unseen.
        for _ in range(rng.randrange(1, 4)):
            ends.tell(told)
            told += 1
            if rng.random() < 0.8:
                ends.channel.send(Cancel(sent))
                sent += 1
        await ends.until(told)
        ends.hear()
    assert [reply.id for reply in ends.replies] == list(range(told))
    assert [command.id for command in ends.commands] == list(range(sent))


async def test_a_flood_is_read_completely_and_others_get_their_turn(ends) -> None:
    ends.tell(*range(1000))
    longest = 0
    while len(ends.replies) < 1000:
        before = len(ends.replies)
        await asyncio.sleep(0)
        longest = max(longest, len(ends.replies) - before)
    assert [reply.id for reply in ends.replies] == list(range(1000))
    assert longest <= 2 * module._MAX_REPLIES_PER_WAKE_UP


async def test_a_reply_larger_than_every_buffer_arrives_in_one_piece(ends) -> None:
    text = "x" * 3_000_000
    sending = asyncio.create_task(
        asyncio.get_running_loop().sock_sendall(ends.child, frame(encoder.encode(Detokenized(1, text))))
    )
    await ends.until(1)
    await sending
    assert ends.replies == [Detokenized(1, text)]


@pytest.mark.parametrize(("limit", "value"), [("_MAX_WAITING_COMMANDS", 10), ("_MAX_WAITING_BYTES", 300_000)])
async def test_a_child_that_does_not_read_gets_no_more_requests_but_every_cancel_in_the_end(
    ends, monkeypatch, limit: str, value: int
) -> None:
    monkeypatch.setattr(module, limit, value)
    sent = fill(ends.channel)
    assert sent < 100
    for number in range(5):
        ends.channel.send_surely(Cancel(number))
    await ends.hear_until(sent + 5)
    assert [command.id for command in ends.commands] == [*range(sent), *range(5)]
    # It takes commands again, and the loop is not kept busy by a socket that could take more.
    ends.channel.send(Cancel(99))
    await ends.hear_until(sent + 6)
    assert not ends.channel._loop.remove_writer(ends.channel._fd)


async def test_one_command_may_be_larger_than_what_may_wait(ends, monkeypatch) -> None:
    monkeypatch.setattr(module, "_MAX_WAITING_BYTES", 100_000)
    command = Detokenize(1, tuple(range(1_000_000)))
    ends.channel.send(command)
    await ends.hear_until(1)
    assert ends.commands == [command]


@pytest.mark.parametrize("data", [frame(b"\xff"), frame(b""), frame(b"\x93\xabDetokenized\x01\xa1\xff"), b"\xff" * 4])
async def test_garbage_is_told_once_and_nothing_is_read_after_it(ends, data: bytes) -> None:
    ends.tell(0)
    for piece in (data, data):
        ends.child.sendall(piece)
    ends.tell(1)
    await ends.until(2)
    ends.channel.send(Cancel(0))
    await ends.hear_until(1)
    assert not ends.channel.drain()
    assert (len(ends.garbage), len(ends.replies)) == (1, 1)


@pytest.mark.parametrize("commands_unread", [False, True])
async def test_the_end_of_the_stream_is_no_garbage_and_comes_after_all_replies(ends, commands_unread: bool) -> None:
    if commands_unread:
        ends.channel.send(Cancel(1))  # the kernel then reports a reset instead of an end
    ends.tell(*range(200))
    ends.child.close()
    ends.channel.send(Cancel(2))
    ends.channel.send_surely(Cancel(3))
    while ends.channel.drain():
        pass
    assert ([reply.id for reply in ends.replies], ends.garbage) == (list(range(200)), [])
    # Else it would be reported again and again.
    assert not ends.channel._loop.remove_reader(ends.channel._fd)


async def test_commands_that_wait_are_dropped_when_the_child_is_gone(ends, monkeypatch) -> None:
    monkeypatch.setattr(module, "_MAX_WAITING_COMMANDS", 10)
    fill(ends.channel)
    ends.tell(1)
    ends.child.close()
    await ends.until(1)
    async with asyncio.timeout(10):
        while ends.channel._waiting:  # noqa: ASYNC110 - the channel tells nobody
            await asyncio.sleep(0)
    assert not ends.channel._loop.remove_writer(ends.channel._fd)
    ends.channel.send(Cancel(1))


async def test_closed_from_within_a_reply_it_hands_over_no_other(ends) -> None:
    ends.channel._on_reply = lambda reply: (ends._receive(reply), ends.channel.close())
    ends.tell(1, 2, 3)
    await ends.until(1)
    await asyncio.sleep(0)
    ends.channel.send(Cancel(1))
    assert len(ends.replies) == 1
