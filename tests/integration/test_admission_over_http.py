"""Who goes first when one request runs at a time: seen in the order in which the upstream receives them."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import httpx

from tests.integration.events import MODELS, whole
from tests.integration.in_process import Gateway, serving, until
from tests.integration.remote_toml import one
from tests.upstream import ScriptedUpstream, Until, scripted

ONE_AT_A_TIME = "\n[queues.chat]\nmax_running = 1\n"
BOSS = {"BATON_ADMIN_KEY": "boss"}


@asynccontextmanager
async def busy(folder: Path, *lines: str) -> AsyncIterator[tuple[Gateway, ScriptedUpstream, asyncio.Event]]:
    """A gateway whose upstream holds the first request until the event."""
    release = asyncio.Event()
    async with (
        scripted([Until(release), *whole()], whole(), checks=MODELS) as upstream,
        serving(folder, one(upstream.url) + ONE_AT_A_TIME + "\n".join(lines), **BOSS) as it,
    ):
        running = asyncio.create_task(it.chat(content="held", key="boss"))
        await until(lambda: upstream.requests)
        yield it, upstream, release
        release.set()
        assert (await running).status_code == 200


async def queue(it: Gateway, requests: Sequence[tuple[str, str]], **fields: str) -> list[asyncio.Task[httpx.Response]]:
    """Let requests wait, in this order: each is what it says and whose key it has."""
    tasks = []
    for content, key in requests:
        before = it.waiting("chat")
        tasks.append(asyncio.create_task(it.chat(content=content, key=key, **fields)))
        await until(lambda before=before: it.waiting("chat") == before + 1)
    return tasks


def order(upstream: ScriptedUpstream) -> list[str]:
    return [asked.json()["messages"][0]["content"] for asked in upstream.requests[1:]]


async def finish(release: asyncio.Event, tasks: list[asyncio.Task[httpx.Response]]) -> None:
    release.set()
    assert {answer.status_code for answer in await asyncio.gather(*tasks)} == {200}


async def test_better_class_goes_first(tmp_path: Path) -> None:
    async with busy(tmp_path) as (it, upstream, release):
        key = await it.create_key(name="all", priority="interactive")
        tasks = []
        for priority in ("batch", "standard", "interactive"):
            tasks += await queue(it, [(priority, key)], x_baton_priority=priority)
        await finish(release, tasks)
    assert order(upstream) == ["interactive", "standard", "batch"]


async def test_class_of_the_key_is_the_default_and_the_best_it_may_claim(tmp_path: Path) -> None:
    async with busy(tmp_path) as (it, upstream, release):
        lazy, eager = [await it.create_key(name=name, priority=name) for name in ("batch", "interactive")]
        tasks = await queue(it, [("lazy", lazy), ("eager", eager)])
        refused = await it.chat(key=lazy, x_baton_priority="interactive")
        await finish(release, tasks)
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "priority_not_allowed")
    assert order(upstream) == ["eager", "lazy"]


async def test_key_that_floods_the_queue_delays_only_itself(tmp_path: Path) -> None:
    async with busy(tmp_path) as (it, upstream, release):
        alice, bob = [await it.create_key(name=name) for name in ("alice", "bob")]
        tasks = await queue(it, [(f"alice {n}", alice) for n in range(6)])
        tasks += await queue(it, [(f"bob {n}", bob) for n in range(2)])
        await finish(release, tasks)
    seen = order(upstream)
    assert [name for name in seen if name.startswith("alice")] == [f"alice {n}" for n in range(6)]
    # Each of bob's requests waits for one of alice's, or two where she came first: not for all six.
    assert seen.index("bob 0") <= 2
    assert seen.index("bob 1") <= 4


async def test_heavier_key_gets_more_turns(tmp_path: Path) -> None:
    async with busy(tmp_path) as (it, upstream, release):
        heavy, light = [await it.create_key(name=name, weight=weight) for name, weight in (("heavy", 3), ("light", 1))]
        tasks = await queue(it, [(f"light {n}", light) for n in range(8)])
        tasks += await queue(it, [(f"heavy {n}", heavy) for n in range(8)])
        await finish(release, tasks)
    first = [name.split()[0] for name in order(upstream)[:8]]
    assert first.count("heavy") in (5, 6, 7), first


async def test_full_queue_and_a_deadline_are_refusals_that_say_when_to_come_back(tmp_path: Path) -> None:
    async with busy(tmp_path, "max_waiting = 1") as (it, upstream, release):
        tasks = await queue(it, [("waits", "boss")])
        full = await it.chat(key="boss")
        release.set()
        await asyncio.gather(*tasks)
    assert (full.status_code, full.json()["error"]["code"]) == (503, "engine_overloaded")
    assert int(full.headers["retry-after"]) >= 1
    assert order(upstream) == ["waits"]


async def test_request_whose_time_is_over_in_the_queue_is_never_sent(tmp_path: Path) -> None:
    async with busy(tmp_path) as (it, upstream, release):
        late = await it.chat(key="boss", content="late", x_baton_timeout="0.05")
        release.set()
    assert (late.status_code, late.json()["error"]["code"]) == (503, "queue_timeout")
    assert order(upstream) == []
