"""Batches without HTTP: real database, real folder, a scripted answer to every line, and a clock that tests move."""

import asyncio
import io
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from gateway.batches.batch import Batch
from gateway.batches.batch_store import BatchStore
from gateway.batches.config import BatchesConfig
from gateway.batches.files import FileStore
from gateway.batches.folder import Folder
from gateway.batches.leases import Leases
from gateway.batches.runner import BatchRunner
from gateway.identity import Identity
from gateway.schema.batches import BatchRequest
from gateway.store.sqlite import Database

ANN = Identity(key_id="key_ann", tenant="ann")
BOB = Identity(key_id="key_bob", tenant="bob")
CHAT = "/v1/chat/completions"

Answer = Callable[[str], Awaitable[tuple[int, Any]]]
"""From the `say` of a line's body to a status and a JSON value, or the bytes of one."""


class Clock:
    def __init__(self) -> None:
        self.now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


def request_line(name: str, **changes: object) -> str:
    return json.dumps({"custom_id": name, "method": "POST", "url": CHAT, "body": {"model": "m", "say": name}} | changes)


def input_file(*names: str) -> str:
    return "\n".join(request_line(name) for name in names) + "\n"


async def fine(say: str) -> tuple[int, Any]:
    return 200, {"said": say}


class Rig:
    """One database and one folder. Runners come and go."""

    def __init__(self, database: Database, folder: Folder, config: BatchesConfig, leases: type[Leases] = Leases) -> None:
        self.config, self.database, self.folder, self.clock = config, database, folder, Clock()
        self.files = FileStore(database, folder, config, clock=self.clock)
        self.store = BatchStore(database, config, clock=self.clock)
        self.leases = leases(database, config, clock=self.clock)
        self.ran: list[str] = []
        self.revoked: set[str] = set()

    def runner(self, answer: Answer = fine, *, delay_s: float = 0.0) -> BatchRunner:
        """A started runner, whose failed attempts are repeated after a delay."""

        async def run_line(identity: Identity, endpoint: str, body: bytes, request_id: str) -> tuple[int, bytes]:
            say = json.loads(body)["say"]
            self.ran.append(say)
            status, value = await answer(say)
            return status, value if isinstance(value, bytes) else json.dumps(value).encode()

        def identify(identity: Identity) -> Identity | None:
            return None if identity.key_id in self.revoked else identity

        runner = BatchRunner(
            self.store, self.files, self.leases, self.config, identify=identify, clock=self.clock, delay_s=lambda _: delay_s
        )
        runner.start(run_line)
        return runner

    async def upload(self, text: str, identity: Identity = ANN) -> str:
        data = text.encode("utf-8", "surrogateescape")
        stored = await self.files.create(identity.tenant, "in.jsonl", "batch", io.BytesIO(data), size=len(data))
        return stored.id

    async def submit(self, text: str, identity: Identity = ANN) -> Batch:
        """Upload a file and make a batch of it."""
        return await self.batch_of(await self.upload(text, identity), identity)

    async def batch_of(self, file_id: str, identity: Identity = ANN) -> Batch:
        body = BatchRequest(input_file_id=file_id, endpoint=CHAT, completion_window="24h")
        return await self.store.create(identity, body)

    async def ended(self, batch: Batch) -> Batch:
        """Wait until a batch has ended."""
        for _ in range(1000):
            batch = await self.store.get(batch.identity.tenant, batch.id)
            if not batch.is_open:
                return batch
            await asyncio.sleep(0.005)
        raise AssertionError(f"{batch} does not end")

    async def results(self, batch: Batch) -> tuple[list[Any], list[Any]]:
        """The lines of the output file and of the error file."""
        return await self._read(batch, batch.output_file_id), await self._read(batch, batch.error_file_id)

    async def _read(self, batch: Batch, id: str | None) -> list[Any]:
        if id is None:
            return []
        found, file = await self.files.open(batch.identity.tenant, id)
        with file:
            data = file.read()
        assert len(data) == found.bytes
        assert data.endswith(b"\n")
        return [json.loads(line) for line in data.split(b"\n")[:-1]]


def names(lines: list[Any]) -> list[str]:
    return [line["custom_id"] for line in lines]


def codes(lines: list[Any]) -> dict[str, str]:
    return {line["custom_id"]: line["error"]["code"] for line in lines}


@asynccontextmanager
async def rigged(path: Path | None = None, *, leases: type[Leases] = Leases, **config: Any) -> AsyncIterator[Rig]:
    """A rig in a folder, or in memory."""
    database = Database(":memory:" if path is None else str(path / "baton.db"))
    folder = Folder(None if path is None else path / "batches")
    try:
        yield Rig(database, folder, BatchesConfig(**config), leases)
    finally:
        await folder.close()
        await database.close()


async def until(condition: Callable[[], bool]) -> None:
    """Wait for a condition that must come true."""
    for _ in range(2000):
        if condition():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("the condition did not come true in time")
