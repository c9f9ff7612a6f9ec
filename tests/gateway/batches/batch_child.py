"""A process that runs batches of a database until it is killed. Every answer is noted in a file before it is given."""

import asyncio
import json
import os
import sys
from pathlib import Path

from gateway.batches.batches import Batches
from gateway.batches.config import BatchesConfig
from gateway.identity import Identity
from gateway.store.sqlite import Database


async def main(folder: Path) -> None:
    database = Database(str(folder / "baton.db"))
    batches = Batches(database, BatchesConfig(concurrency=3, lease_s=1), identify=lambda identity: identity)
    log = os.open(folder / "ran", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    async def run_line(identity: Identity, endpoint: str, body: bytes, request_id: str) -> tuple[int, bytes]:
        os.write(log, json.loads(body)["say"].encode() + b"\n")
        await asyncio.sleep(0.01)
        return 200, body

    batches.start(run_line)
    await asyncio.sleep(60)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
