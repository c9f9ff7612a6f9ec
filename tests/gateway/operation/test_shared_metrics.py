"""The metrics of several workers as those of one gateway."""

import asyncio
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from backends.fake import FakeModel
from backends.types import Health, Usage
from gateway.config import ServerConfig, Settings
from gateway.operation import Operation
from gateway.peers import Peers
from gateway.services import Services, build_services
from gateway.store.config import MEMORY, StoreConfig
from gateway.telemetry.merge import living_on, merge, pack, render, unpack
from gateway.telemetry.telemetry import Telemetry

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def samples(body: bytes) -> Samples:
    families = text_string_to_metric_families(body.decode())
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value for family in families for sample in family.samples
    }


def own(found: Samples) -> Samples:
    """Without what differs between two looks at the same process."""
    return {key: value for key, value in found.items() if not key[0].startswith("process_")}


def value(found: Samples, name: str, **labels: str) -> float | None:
    return found.get((name, tuple(sorted(labels.items()))))


def telemetry(requests: int, *, running: int = 0, state: str = "ready") -> tuple[Telemetry, dict[str, Health]]:
    one = Telemetry(["a"], version="1")
    for _ in range(requests):
        observation = one.begin("chat", "a", True)
        observation.tokens(2)
        observation.finish(Usage(5, 2, 0), "stop")
    for _ in range(running):
        one.begin("chat", "a", True)
    return one, {"a": Health(state=state, running=running, slots=4)}


def test_one_process_looks_the_same_after_the_journey():
    one, healths = telemetry(3)
    for accept in ("", "application/openmetrics-text"):
        there = render(merge([unpack(pack(one.collect(healths)))]), accept)
        direct = one.exposition(healths, accept)
        assert there[1] == direct[1]
        assert _lines(there[0]) == _lines(direct[0])


def _lines(body: bytes) -> list[bytes]:
    return [line for line in body.splitlines() if b"process_" not in line]


def test_counts_and_gauges_are_added_and_descriptions_are_not():
    parts = [one.collect(healths) for one, healths in (telemetry(3, running=1), telemetry(4, running=2, state="loading"))]
    found = samples(render(merge([unpack(pack(part)) for part in parts]), "")[0])
    where = {"endpoint": "chat", "model": "a"}
    assert value(found, "baton_requests_total", status="200", error_code="", **where) == 7
    assert value(found, "baton_prompt_tokens_total", **where) == 35
    assert value(found, "baton_request_duration_seconds_count", **where) == 7
    assert value(found, "baton_request_duration_seconds_bucket", le="+Inf", **where) == 7
    assert value(found, "baton_requests_in_flight", stream="true", **where) == 3
    assert value(found, "baton_engine_slots", model="a") == 8
    assert value(found, "baton_engine_state", model="a", state="loading") == 1
    assert value(found, "baton_build_info", version="1") == 1


def test_only_sums_live_on():
    one, healths = telemetry(3, running=1)
    found = samples(render(living_on(one.collect(healths)), "")[0])
    assert value(found, "baton_requests_total", endpoint="chat", model="a", status="200", error_code="") == 3
    assert not [name for name, _ in found if name.startswith("baton_engine_") or "in_flight" in name]


@settings(deadline=None, max_examples=25)
@given(st.lists(st.integers(0, 4), min_size=1, max_size=4))
def test_order_and_grouping_of_workers_do_not_matter(counts):
    parts = [one.collect(healths) for one, healths in map(telemetry, counts)]
    whole = own(samples(render(merge(parts), "")[0]))
    grouped = own(samples(render(merge([merge(parts[:1]), merge(parts[:0:-1])]), "")[0]))
    assert grouped.keys() == whole.keys()
    assert all(grouped[key] == pytest.approx(whole[key]) for key in whole)


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_garbage_is_no_metrics(data):
    try:
        unpack(data)
    except msgspec.MsgspecError:
        return


def services() -> Services:
    server = ServerConfig()
    return build_services(Settings(server=server, models={"a": FakeModel()}, store=StoreConfig(path=MEMORY)))


async def asked(operation: Operation) -> Samples:
    return samples((await operation.metrics(""))[0])


def count(one: Services, requests: int) -> None:
    for _ in range(requests):
        one.telemetry.begin("chat", "a", False).finish(Usage(1, 1, 0), "stop")


TOTAL = ("baton_requests_total", tuple(sorted({"endpoint": "chat", "model": "a", "status": "200", "error_code": ""}.items())))


async def test_every_worker_tells_the_sum_and_the_file_of_one_that_is_gone_counts(tmp_path: Path):
    first, second = services(), services()
    peers = [Peers(tmp_path, index, 2) for index in range(2)]
    operations = [Operation(first, None, peers[0]), Operation(second, None, peers[1])]
    for operation in operations:
        await operation.start()
    count(first, 2)
    count(second, 3)
    assert [(await asked(operation))[TOTAL] for operation in operations] == [5, 5]
    count(second, 1)
    assert (await asked(operations[0]))[TOTAL] == 6
    count(second, 100)
    await peers[1].close()
    assert (await asked(operations[0]))[TOTAL] == 6, "what it never told anybody is lost, what it told is not"
    successor = Operation(services(), None, Peers(tmp_path, 1, 2))
    await successor.start()
    assert (await asked(successor))[TOTAL] == 6
    for operation in (operations[0], successor):
        await operation.close()
    for one in (first, second):
        await one.close()


async def test_worker_that_ends_properly_leaves_all_it_counted(tmp_path: Path):
    first = services()
    operation = Operation(first, None, Peers(tmp_path, 0, 2))
    await operation.start()
    count(first, 7)
    await operation.close()
    other = Operation(first, None, Peers(tmp_path, 1, 2))
    await other.start()
    assert (await asked(other))[TOTAL] == 14
    await other.close()
    await first.close()


async def test_damaged_file_of_a_worker_is_left_out(tmp_path: Path):
    (tmp_path / "1.metrics").write_bytes(b"\xff nothing")
    first = services()
    operation = Operation(first, None, Peers(tmp_path, 0, 2))
    await operation.start()
    count(first, 1)
    assert (await asked(operation))[TOTAL] == 1
    await operation.close()
    await first.close()


async def test_peer_that_does_not_answer_in_time_is_no_error(tmp_path: Path):
    async def never() -> bytes:
        await asyncio.sleep(3600)
        return b""

    async def nothing() -> bytes:
        return b""

    slow, here = Peers(tmp_path, 1, 4), Peers(tmp_path, 0, 4)
    empty = Peers(tmp_path, 2, 4)
    await slow.listen({"q": never})
    await empty.listen({"q": nothing})
    assert await here.ask("q", 0.1) == {1: None, 2: b"", 3: None}
    assert await here.ask("unknown", 0.1) == {1: None, 2: None, 3: None}
    await slow.close()
    await empty.close()
