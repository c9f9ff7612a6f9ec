"""Running batches: every line gets exactly one result, whatever happens to it, to the batch or to the runner."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from gateway.batches.batch import WINDOW_S
from gateway.batches.errors import Conflicting, StorageFull
from gateway.batches.leases import PER_TENANT
from tests.gateway.batches.rig import ANN, BOB, codes, input_file, names, request_line, rigged, until


class Gate:
    """Holds every line until it is opened."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.waiting = 0
        self.most = 0

    async def __call__(self, say: str) -> tuple[int, Any]:
        self.waiting += 1
        self.most = max(self.most, self.waiting)
        await self.open.wait()
        self.waiting -= 1
        return 200, {"said": say}


async def test_answers_and_failures_go_to_their_files() -> None:
    async def answer(say: str) -> tuple[int, Any]:
        return (400, {"error": {"message": "no"}}) if say == "bad" else (200, {"said": say})

    async with rigged() as rig:
        batch = await rig.submit(input_file("a", "bad", "c"))
        assert (batch.status, batch.expires_at - batch.created_at) == ("validating", WINDOW_S)
        runner = rig.runner(answer)
        batch = await rig.ended(batch)
        output, error = await rig.results(batch)
        await runner.close()
    assert (batch.status, batch.total, batch.completed, batch.failed) == ("completed", 3, 2, 1)
    assert sorted(names(output)) == ["a", "c"]
    assert names(error) == ["bad"]
    assert output[0]["response"]["body"] == {"said": names(output)[0]}
    assert output[0]["response"]["request_id"].startswith("req_")
    assert output[0]["error"] is None
    assert error[0]["response"]["status_code"] == 400
    assert error[0]["response"]["body"] == {"error": {"message": "no"}}


@pytest.mark.parametrize("status", [429, 500, 503])
async def test_a_line_is_repeated_until_it_is_answered(status: int) -> None:
    tries = 0

    async def answer(say: str) -> tuple[int, Any]:
        nonlocal tries
        tries += 1
        return (status, {}) if tries < 4 else (200, {"said": say})

    async with rigged() as rig:
        runner = rig.runner(answer)
        batch = await rig.ended(await rig.submit(input_file("a")))
        await runner.close()
    assert (batch.completed, tries) == (1, 4)


async def test_a_line_is_repeated_only_so_often() -> None:
    async def answer(say: str) -> tuple[int, Any]:
        return 503, {"error": {"code": "model_unavailable"}}

    async with rigged(max_attempts=3) as rig:
        runner = rig.runner(answer)
        batch = await rig.ended(await rig.submit(input_file("a")))
        _, error = await rig.results(batch)
        await runner.close()
    assert rig.ran == ["a"] * 3
    assert batch.status == "completed"
    assert error[0]["response"]["status_code"] == 503


async def test_a_bug_becomes_an_error_of_the_line(caplog: pytest.LogCaptureFixture) -> None:
    async def answer(say: str) -> tuple[int, Any]:
        raise ValueError("secret")

    async with rigged(max_attempts=2) as rig:
        runner = rig.runner(answer)
        batch = await rig.ended(await rig.submit(input_file("a")))
        _, error = await rig.results(batch)
        await runner.close()
    assert codes(error) == {"a": "internal_error"}
    assert "secret" not in str(error)
    assert len(caplog.records) == 2


async def test_a_line_that_takes_too_long_is_given_up() -> None:
    async with rigged(line_timeout_s=0.01) as rig:
        runner = rig.runner(Gate())
        batch = await rig.ended(await rig.submit(input_file("a")))
        _, error = await rig.results(batch)
        await runner.close()
    assert codes(error) == {"a": "request_timeout"}


async def test_only_so_many_lines_run_at_once_over_all_batches() -> None:
    gate = Gate()
    async with rigged(concurrency=3) as rig:
        batches = [await rig.submit(input_file(*(f"{n}-{i}" for i in range(5))), who) for n, who in enumerate((ANN, BOB))]
        runner = rig.runner(gate)
        await until(lambda: gate.waiting == 3)
        gate.open.set()
        for batch in batches:
            assert (await rig.ended(batch)).completed == 5
        await runner.close()
    assert gate.most == 3


async def test_a_cancelled_batch_begins_no_further_line() -> None:
    gate = Gate()
    async with rigged(concurrency=2) as rig:
        batch = await rig.submit(input_file("a", "b", "c", "d"))
        runner = rig.runner(gate)
        await until(lambda: gate.waiting == 2)
        assert (await rig.store.cancel("ann", batch.id)).status == "cancelling"
        assert (await rig.store.cancel("ann", batch.id)).status == "cancelling"
        gate.open.set()
        batch = await rig.ended(batch)
        output, error = await rig.results(batch)
        with pytest.raises(Conflicting, match="'cancelled' cannot be cancelled"):
            await rig.store.cancel("ann", batch.id)
        await runner.close()
    assert (batch.status, batch.completed, batch.failed, batch.total) == ("cancelled", 2, 2, 4)
    assert sorted(names(output)) == ["a", "b"]
    assert codes(error) == {"c": "batch_cancelled", "d": "batch_cancelled"}
    assert rig.ran == ["a", "b"]


@pytest.mark.parametrize("is_drained", [False, True])
async def test_a_line_that_waits_for_another_attempt_holds_nobody_up(is_drained: bool) -> None:
    async def answer(say: str) -> tuple[int, Any]:
        return 503, {}

    # Nobody looks by himself for a long time.
    async with rigged(lease_s=600) as rig:
        batch = await rig.submit(input_file("a"))
        runner = rig.runner(answer, delay_s=3600)
        await until(lambda: rig.ran == ["a"])
        if is_drained:
            await runner.drain()
            assert (await rig.store.get("ann", batch.id)).status == "in_progress"
        else:
            await rig.store.cancel("ann", batch.id)
            _, error = await rig.results(await rig.ended(batch))
            assert codes(error) == {"a": "batch_cancelled"}
        await runner.close()
    assert rig.ran == ["a"]


async def test_a_batch_that_is_cancelled_before_it_begins_has_no_lines() -> None:
    async with rigged() as rig:
        batch = await rig.submit(input_file("a"))
        await rig.store.cancel("ann", batch.id)
        runner = rig.runner()
        batch = await rig.ended(batch)
        await runner.close()
    assert (batch.status, batch.total, batch.output_file_id, batch.error_file_id) == ("cancelled", 0, None, None)
    assert rig.ran == []


async def test_lines_left_at_the_end_of_the_window_expire() -> None:
    gate = Gate()
    async with rigged(concurrency=1) as rig:
        batch = await rig.submit(input_file("a", "b", "c"))
        runner = rig.runner(gate)
        await until(lambda: gate.waiting == 1)
        rig.clock.now += WINDOW_S
        gate.open.set()
        batch = await rig.ended(batch)
        output, error = await rig.results(batch)
        await runner.close()
    assert (batch.status, batch.completed, batch.failed) == ("expired", 1, 2)
    assert names(output) == ["a"]
    assert codes(error) == {"b": "batch_expired", "c": "batch_expired"}


async def test_draining_ends_what_runs_and_leaves_the_rest_for_the_next_start() -> None:
    gate = Gate()
    async with rigged(concurrency=2) as rig:
        batch = await rig.submit(input_file("a", "b", "c", "d"))
        runner = rig.runner(gate)
        await until(lambda: gate.waiting == 2)
        draining = asyncio.create_task(runner.drain())
        await asyncio.sleep(0.02)
        assert not draining.done()
        gate.open.set()
        await draining
        assert rig.ran == ["a", "b"]
        assert (await rig.store.get("ann", batch.id)).completed == 2
        await runner.close()
        runner = rig.runner()
        batch = await rig.ended(batch)
        output, _ = await rig.results(batch)
        await runner.close()
    assert batch.status == "completed"
    assert sorted(names(output)) == rig.ran == ["a", "b", "c", "d"]


async def test_closing_cuts_lines_off_and_the_next_start_runs_them_again_at_once() -> None:
    gate = Gate()
    async with rigged(concurrency=1) as rig:
        batch = await rig.submit(input_file("a", "b"))
        runner = rig.runner(gate)
        await until(lambda: gate.waiting == 1)
        await runner.close()
        runner = rig.runner()
        assert (await rig.ended(batch)).completed == 2
        await runner.close()
    assert rig.ran == ["a", "a", "b"]


async def test_two_processes_never_run_the_same_batch(tmp_path: Path) -> None:
    async with rigged(tmp_path) as one, rigged(tmp_path) as two:
        two.clock = one.clock
        batches = [await one.submit(input_file(*(f"{n}-{i}" for i in range(20)))) for n in range(3)]
        runners = [rig.runner() for rig in (one, two)]
        for batch in batches:
            assert (await one.ended(batch)).completed == 20
        for runner in runners:
            await runner.close()
        assert sorted(one.ran + two.ran) == sorted(f"{n}-{i}" for n in range(3) for i in range(20))


async def test_what_a_sleeper_does_after_its_lease_does_not_count(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    gate = Gate()
    async with rigged(tmp_path) as sleeper, rigged(tmp_path) as other:
        batch = await sleeper.submit(input_file("a", "b"))
        asleep = sleeper.runner(gate)
        await until(lambda: gate.waiting == 2)
        other.clock.now += sleeper.config.lease_s + 1
        awake = other.runner()
        batch = await other.ended(batch)
        gate.open.set()
        await until(lambda: "was taken over" in caplog.text)
        output, error = await other.results(batch)
        assert (batch.completed, sorted(names(output)), error) == (2, ["a", "b"], [])
        await asleep.close()
        await awake.close()
        await other.files.purge()
        kept = set(await other.folder.names())
    assert kept >= {batch.input_file_id, batch.output_file_id}


async def test_a_revoked_key_ends_its_lines() -> None:
    async with rigged() as rig:
        rig.revoked.add("key_ann")
        runner = rig.runner()
        ann, bob = await rig.submit(input_file("a")), await rig.submit(input_file("b"), BOB)
        _, error = await rig.results(await rig.ended(ann))
        assert (await rig.ended(bob)).completed == 1
        await runner.close()
    assert codes(error) == {"a": "invalid_api_key"}
    assert rig.ran == ["b"]


async def test_results_over_the_limit_are_refused_without_being_run() -> None:
    async def answer(say: str) -> tuple[int, Any]:
        return 200, {"said": "x" * 2000}

    async with rigged(concurrency=1, max_output_bytes=3000) as rig:
        runner = rig.runner(answer)
        batch = await rig.ended(await rig.submit(input_file("a", "b", "c", "d")))
        _, error = await rig.results(batch)
        await runner.close()
    assert rig.ran == ["a", "b"]
    assert codes(error) == {"c": "output_limit_exceeded", "d": "output_limit_exceeded"}


async def test_only_so_many_batches_are_unfinished() -> None:
    async with rigged(max_tenant_batches=2) as rig:
        file = await rig.upload(input_file("a"))
        batches = [await rig.batch_of(file) for _ in range(2)]
        with pytest.raises(StorageFull, match="2 batches are unfinished; the limit is 2") as caught:
            await rig.batch_of(file)
        assert caught.value.code == "too_many_batches"
        await rig.submit(input_file("b"), BOB)
        runner = rig.runner()
        await rig.ended(batches[0])
        await rig.batch_of(file)
        await runner.close()


async def test_one_tenant_does_not_keep_the_others_waiting() -> None:
    gate = Gate()
    async with rigged(concurrency=100) as rig:
        mine = [await rig.submit(input_file(f"a{n}")) for n in range(PER_TENANT + 2)]
        bob = await rig.submit(input_file("b"), BOB)
        runner = rig.runner(gate)
        await until(lambda: gate.waiting == PER_TENANT + 1)
        assert sorted(rig.ran) == [*(f"a{n}" for n in range(PER_TENANT)), "b"]
        gate.open.set()
        for batch in (*mine, bob):
            assert (await rig.ended(batch)).completed == 1
        await runner.close()


async def test_an_answer_over_many_lines_becomes_one_line() -> None:
    async def answer(say: str) -> tuple[int, Any]:
        return 200, b'{\n  "said": "1.10\\n",\r\n  "score": 1.10e0\n}\n'

    async with rigged() as rig:
        runner = rig.runner(answer)
        batch = await rig.ended(await rig.submit(request_line("a")))
        output, _ = await rig.results(batch)
        await runner.close()
    assert output[0]["response"]["body"] == {"said": "1.10\n", "score": 1.1}


async def test_a_batch_whose_file_is_gone_fails(tmp_path: Path) -> None:
    async with rigged(tmp_path) as rig:
        batch = await rig.submit(input_file("a"))
        (tmp_path / "batches" / batch.input_file_id).unlink()
        runner = rig.runner()
        batch = await rig.ended(batch)
        await runner.close()
    assert (batch.status, [error.code for error in batch.errors]) == ("failed", ["file_not_found"])


async def test_a_runner_goes_on_when_the_disk_is_well_again(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    gate = Gate()
    async with rigged(tmp_path) as rig:
        batch = await rig.submit(input_file("a", "b"))
        runner = rig.runner(gate)
        await until(lambda: gate.waiting == 2)
        broken = tmp_path / "batches" / f"{batch.id}.1.output"
        broken.mkdir()
        gate.open.set()
        await until(lambda: "results cannot be stored" in caplog.text)
        assert (await rig.store.get("ann", batch.id)).completed == 0
        broken.rmdir()
        rig.clock.now += rig.config.lease_s + 1
        rig.store.changed.set()
        batch = await rig.ended(batch)
        output, _ = await rig.results(batch)
        await runner.close()
    assert sorted(names(output)) == ["a", "b"]


def test_nothing_is_opened_before_there_is_something_to_run(tmp_path: Path) -> None:
    async def look() -> None:
        async with rigged(tmp_path) as rig:
            runner = rig.runner()
            await asyncio.sleep(0.05)
            await runner.close()

    asyncio.run(look())
    assert list(tmp_path.iterdir()) == []
