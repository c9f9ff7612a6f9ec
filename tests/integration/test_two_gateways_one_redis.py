"""Two gateway processes that share one Redis sell no more tokens than a key has, to fifty clients at once."""

import asyncio
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from tests.e2e.gateway_process import running
from tests.integration.events import DONE, MODELS, STOP, completion, piece
from tests.integration.events import chunk as event_chunk
from tests.integration.in_process import CHAT, until_status
from tests.integration.remote_toml import one
from tests.redis_server import RedisServer, find_server
from tests.upstream import Script, chunked_stream, json_answer, scripted

CLIENTS, ATTEMPTS = 50, 8
TOKENS_PER_MINUTE = 4000
USED = 40
USAGE = {"prompt_tokens": 10, "completion_tokens": USED - 10, "total_tokens": USED}
# By whatever measure, this prompt and 40 tokens of answer are more than the upstream reports.
QUESTION = {"model": "chat", "messages": [{"role": "user", "content": "word " * 60}], "max_tokens": 40}
BOSS = {"authorization": "Bearer boss"}

CONFIG = """
[keys]
store = "redis"
refresh_s = 0.1

[store]
path = ":memory:"
redis_url = "{url}"
redis_timeout_s = 5
"""


async def client(number: int, http: httpx.AsyncClient, urls: list[str], key: str, stream: bool) -> Counter[tuple[str, int]]:
    """Ask again and again, at both gateways in turn; count what came of it."""
    outcomes: Counter[tuple[str, int]] = Counter()
    headers = {"authorization": f"Bearer {key}"}
    for attempt in range(ATTEMPTS):
        url = urls[(number + attempt) % len(urls)]
        answer = await http.post(url + CHAT, json=QUESTION | {"stream": stream}, headers=headers)
        if answer.status_code == 429:
            assert int(answer.headers["retry-after"]) >= 1
        outcomes[url, answer.status_code] += 1
    return outcomes


async def usable_key(http: httpx.AsyncClient, urls: list[str]) -> str:
    """A new key, once both gateways know it."""
    fields = {"name": "shared", "allowance": {"tokens_per_minute": TOKENS_PER_MINUTE}}
    made = await http.post(f"{urls[0]}/admin/keys", json=fields, headers=BOSS)
    key: str = made.json()["key"]
    for url in urls:
        await until_status(http, f"{url}/v1/models", 200, authorization=f"Bearer {key}")
    return key


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_tokens_are_never_oversold(tmp_path: Path, stream: bool) -> None:
    if find_server() is None:
        pytest.skip("no Redis-compatible server is installed: make test")
    usage = event_chunk({}, choices=[], usage=USAGE)
    script: Script = chunked_stream(piece("a"), STOP, usage, DONE) if stream else json_answer(completion(usage=USAGE))
    async with scripted(script, checks=MODELS) as upstream:
        with RedisServer() as redis, ExitStack() as gateways:
            text = one(upstream.url) + CONFIG.format(url=redis.url)
            servers = [gateways.enter_context(running(tmp_path / name, text, BATON_ADMIN_KEY="boss")) for name in "ab"]
            urls = [server.url for server in servers]
            async with httpx.AsyncClient(timeout=30, limits=httpx.Limits(max_connections=None)) as http:
                key = await usable_key(http, urls)
                began = time.monotonic()
                counts = await asyncio.gather(*(client(number, http, urls, key, stream) for number in range(CLIENTS)))
                elapsed_s = time.monotonic() - began
    outcomes = sum(counts, Counter())
    assert {status for _, status in outcomes} == {200, 429}, outcomes
    sold = USED * sum(count for (_, status), count in outcomes.items() if status == 200)
    assert sold == USED * len(upstream.requests)
    assert TOKENS_PER_MINUTE / 2 < sold <= TOKENS_PER_MINUTE * (1 + elapsed_s / 60)
    assert all(outcomes[url, 200] for url in urls)
