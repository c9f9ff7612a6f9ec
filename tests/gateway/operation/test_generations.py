"""What a reload keeps, what it replaces, and when that is closed."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import msgspec
import pytest

from backends.errors import Failed
from backends.fake import FakeBackend, FakeModel
from backends.fake_script import FakeReply
from backends.types import Chat, GenerateRequest, Health, Message
from gateway import services as composition
from gateway.admission.config import AdmissionConfig
from gateway.backends import build_backends
from gateway.call import Call
from gateway.config import ServerConfig, Settings
from gateway.config_sources.reader import ConfigError
from gateway.dispatch.answer import StreamedAnswer
from gateway.limits.prices import Price
from gateway.reload import BadConfiguration, Plan, ReloadBusy, Reloader, plan_reload
from gateway.retirement import MAX_RETIRED
from gateway.routing.config import BreakerConfig, CanaryConfig, Member, RouteConfig
from gateway.services import Services, build_services
from gateway.store.config import MEMORY, StoreConfig
from gateway.translate.ending import OpenAiEnding

A, B = FakeModel(), FakeModel(slots=2)


def settings(models, **sections) -> Settings:
    return Settings(server=ServerConfig(), models=models, store=StoreConfig(path=MEMORY), **sections)


@asynccontextmanager
async def serving(initial: Settings) -> AsyncIterator[Services]:
    services = build_services(initial)
    await services.start()
    try:
        yield services
    finally:
        await services.close()


async def change(services: Services, wanted: Settings) -> Plan:
    plan = plan_reload(services.settings, wanted)
    await services.apply(plan)
    return plan


async def is_closed(backend) -> bool:
    return (await backend.health()).state == "stopped"


async def until(condition: Callable[[], object]) -> None:
    """Let others run until it holds, which must be soon."""
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0.001)


async def until_retired(services: Services) -> None:
    await until(lambda: not len(services._retirement))


async def ask(services: Services, model: str) -> str:
    request = GenerateRequest(id="r", model=model, prompt=Chat(messages=(Message(role="user", content=("hi",)),)))
    return await play(services, Call("r", "chat", model), request)


class Plain(OpenAiEnding):
    """Nothing but the text."""

    done = b""

    def encode(self, delta) -> bytes:
        return delta.text.encode()


async def play(services: Services, call: Call, request: GenerateRequest) -> str:
    """Send a request through limits, queue and router, and return the text of its answer."""

    async def start(deployment):
        deltas = deployment.backend.generate(msgspec.structs.replace(request, model=deployment.name))
        return await StreamedAnswer(deltas, Plain()).begin()

    opened = await services.dispatch.open(call, start, stream=True)
    try:
        text = opened.source.first
        while not opened.source.ended:
            text += await opened.next()
        return text.decode()
    finally:
        await opened.aclose()


async def test_unchanged_model_keeps_its_backend_queue_and_state():
    async with serving(settings({"a": A, "b": A})) as services:
        backend, queue, deployment = services.backends["a"], services.queues["a"], services.router.deployments["a"]
        route, gone = services.router.resolve("a"), services.backends["b"]
        await change(services, settings({"a": A, "b": B, "c": A}))
        assert services.backends["a"] is backend
        assert services.queues["a"] is queue
        assert services.router.deployments["a"] is deployment
        assert services.router.resolve("a") is route
        assert services.backends["b"] is not gone
        assert services.router.deployments["b"].backend is services.backends["b"]
        assert services.catalog.names() == ("a", "b", "c")
        await until_retired(services)
        assert await is_closed(gone)
        assert not await is_closed(backend)
        assert await ask(services, "c")


async def test_open_breaker_stays_open_and_a_canary_where_it_was():
    routes = {
        "r": RouteConfig(deployments=(Member(model="a"),), canary=CanaryConfig(deployment="b")),
    }
    async with serving(settings({"a": A, "b": A}, routes=routes)) as services:
        canary = services.router.resolve("r").canary
        canary.rollback()
        for _ in range(20):
            services.router.deployments["a"].begin(Call("x", "chat", "r")).failed(Failed("broken"))
        now = services.router.clock()
        assert not services.router.deployments["a"].breaker.allows(now)
        await change(services, settings({"a": A, "b": A, "c": A}, routes=routes))
        assert services.router.resolve("r").canary is canary
        assert not services.router.deployments["a"].breaker.allows(now)


async def test_changed_rules_for_breakers_make_new_ones():
    async with serving(settings({"a": A})) as services:
        before = services.router.deployments["a"]
        await change(services, settings({"a": A}, breaker=BreakerConfig(min_calls=7)))
        assert services.router.deployments["a"] is not before
        assert services.router.deployments["a"].backend is before.backend


async def test_queue_with_other_bounds_is_a_new_one():
    async with serving(settings({"a": A, "b": A})) as services:
        before = dict(services.queues)
        await change(services, settings({"a": A, "b": A}, queues={"a": AdmissionConfig(max_running=1)}))
        assert services.queues["a"] is not before["a"]
        assert services.queues["b"] is before["b"]


async def test_prices_change_for_the_account_and_for_the_limits():
    prices = {"a": Price(output_per_mtok=1_000_000)}
    async with serving(settings({"a": A})) as services:
        await change(services, settings({"a": A}, prices=prices))
        assert services.stores.limiter.prices == prices
        call = Call("r", "chat", "a")
        request = GenerateRequest(id="r", model="a", prompt=Chat(messages=(Message(role="user", content=("hi",)),)))
        await play(services, call, request)
        assert call.trail.cost_usd == call.usage.completion_tokens


async def test_replaced_backend_is_closed_when_the_last_request_from_before_has_ended():
    async with serving(settings({"a": A})) as services:
        first, epoch = services.backends["a"], services.drain.enter()
        await change(services, settings({"a": B}))
        second, later = services.backends["a"], services.drain.enter()
        await change(services, settings({"a": FakeModel(slots=3)}))
        for _ in range(5):
            await asyncio.sleep(0)
        assert not await is_closed(first)
        assert not await is_closed(second)
        services.drain.leave(later)
        for _ in range(5):
            await asyncio.sleep(0)
        assert not await is_closed(first)
        assert not await is_closed(second), "a request that came before the first reload may still use it"
        services.drain.leave(epoch)
        await until_retired(services)
        assert await is_closed(first)
        assert await is_closed(second)
        assert not await is_closed(services.backends["a"])


async def test_request_that_waits_in_the_queue_of_before_is_served_by_what_was_there():
    slow = FakeModel(replies=(FakeReply(text="old"),))
    bounds = {"a": AdmissionConfig(max_running=1)}
    async with serving(settings({"a": slow}, queues=bounds)) as services:
        epoch = services.drain.enter()
        ticket = await services.queues["a"].admit(Call("x", "chat", "a"))
        waiting = asyncio.create_task(ask(services, "a"))
        await asyncio.sleep(0)
        assert services.queues["a"].snapshot().waiting["interactive"] == 1
        await change(services, settings({"a": FakeModel(replies=(FakeReply(text="new"),))}, queues=bounds))
        ticket.release()
        assert await waiting == "old"
        assert await ask(services, "a") == "new"
        services.drain.leave(epoch)


async def test_too_many_replaced_models_that_still_serve_refuse_another_reload():
    async with serving(settings({"a": A})) as services:
        epoch = services.drain.enter()
        for slots in range(20, 20 + MAX_RETIRED):
            await change(services, settings({"a": FakeModel(slots=slots)}))
        backend = services.backends["a"]
        with pytest.raises(ReloadBusy, match="8 earlier reloads"):
            await change(services, settings({"a": A}))
        assert services.backends["a"] is backend
        services.drain.leave(epoch)
        await until_retired(services)
        await change(services, settings({"a": A}))


async def test_reloads_that_replace_no_model_are_not_counted():
    async with serving(settings({"a": A})) as services:
        epoch = services.drain.enter()
        for calls in range(1, 3 * MAX_RETIRED):
            await change(services, settings({"a": A}, breaker=BreakerConfig(min_calls=calls)))
            await asyncio.sleep(0.001)
        services.drain.leave(epoch)


class Loading(FakeBackend):
    """Loads until it is told how that ends."""

    made: list["Loading"]

    def __init__(self, name: str) -> None:
        super().__init__(name, A)
        self.state = "loading"
        Loading.made.append(self)

    async def health(self) -> Health:
        return Health(state="stopped") if self._closed else Health(state=self.state, detail="the file is damaged")


@pytest.fixture
def loading(monkeypatch) -> list[Loading]:
    Loading.made = []

    def build(models):
        if not any(model.slots == 77 for model in models.values()):
            return build_backends(models)
        return {name: Loading(name) for name in models}, {}

    monkeypatch.setattr(composition, "build_backends", build)
    return Loading.made


async def test_old_model_serves_until_the_new_one_is_loaded(loading):
    async with serving(settings({"a": A})) as services:
        first = services.backends["a"]
        changing = asyncio.create_task(change(services, settings({"a": FakeModel(slots=77)})))
        await until(lambda: loading)
        assert services.backends["a"] is first
        assert await ask(services, "a")
        loading[0].state = "ready"
        await changing
        assert services.backends["a"] is loading[0]


async def test_model_that_does_not_load_changes_nothing_and_is_closed(loading):
    async with serving(settings({"a": A, "b": A})) as services:
        generation = services.generation
        changing = asyncio.create_task(change(services, settings({"a": FakeModel(slots=77), "b": B})))
        await until(lambda: loading)
        loading[0].state, loading[1].state = "failed", "ready"
        with pytest.raises(BadConfiguration) as refused:
            await changing
        assert refused.value.mistakes[0] == "models.a: did not start: the file is damaged"
        assert services.generation is generation
        assert await is_closed(loading[0])
        assert await is_closed(loading[1])


async def test_gateway_that_goes_down_while_a_model_loads_leaves_none_behind(loading):
    async with serving(settings({"a": A})) as services:
        changing = asyncio.create_task(change(services, settings({"a": FakeModel(slots=77)})))
        await until(lambda: loading)
        changing.cancel()
        await asyncio.wait((changing,))
        assert await is_closed(loading[0])


async def test_closing_closes_what_was_replaced_too():
    async with serving(settings({"a": A})) as services:
        first = services.backends["a"]
        services.drain.enter()
        await change(services, settings({"a": B}))
    assert await is_closed(first)
    assert await is_closed(services.backends["a"])


async def test_nothing_is_reloaded_before_the_start_and_while_draining():
    services = build_services(settings({"a": A}))
    with pytest.raises(ReloadBusy):
        await change(services, settings({"a": B}))
    await services.start()
    services.drain.begin()
    with pytest.raises(ReloadBusy):
        await change(services, settings({"a": B}))
    await services.close()


async def test_new_model_gets_labels_of_its_own():
    async with serving(settings({"a": A})) as services:
        await change(services, settings({"a": A, "b": B}))
        services.telemetry.begin("chat", "b", False).fail("engine_failed", 502)
        body, _ = services.telemetry.exposition({})
        assert b'model="b"' in body
        assert b'model="unknown"' not in body


async def test_reloader_applies_logs_and_counts_mistakes(caplog):
    wanted = settings({"a": A})

    def load() -> Settings:
        if isinstance(wanted, ConfigError):
            raise wanted
        return wanted

    told = []
    async with serving(wanted) as services:
        reloader = Reloader(services, load, lambda: told.append(1))
        assert (await reloader.reload()).is_empty
        wanted = settings({"a": B})
        assert (await reloader.reload()).changed == ("a",)
        assert told == [1]
        wanted = ConfigError(["one mistake", "another"])
        with pytest.raises(BadConfiguration) as refused:
            await reloader.reload()
        assert refused.value.mistakes == ("one mistake", "another")
        assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == [
            "the configuration was not reloaded: one mistake",
            "the configuration was not reloaded: another",
        ]
        await reloader.reload_or_log()
        assert told == [1]


async def test_second_reload_is_refused_or_waits_its_turn(loading):
    wanted = settings({"a": FakeModel(slots=77)})
    async with serving(settings({"a": A})) as services:
        reloader = Reloader(services, lambda: wanted)
        first = asyncio.create_task(reloader.reload())
        await until(lambda: loading)
        with pytest.raises(ReloadBusy, match="under way"):
            await reloader.reload()
        second = asyncio.create_task(reloader.reload(wait=True))
        loading[0].state = "ready"
        assert (await first).changed == ("a",)
        assert (await second).is_empty


async def test_failed_and_replaced_models_are_stale():
    async with serving(settings({"a": A, "b": A})) as services:
        services.generation.failures["a"] = "broken"
        services._stamps = {"b": (("f", 1, 2, 3),)}
        assert await services.stale({"b": (("f", 1, 2, 4),)}) == {"a", "b"}
        assert await services.stale({"b": (("f", 1, 2, 3),)}) == {"a"}
