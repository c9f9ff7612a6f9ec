"""A closed-loop load generator for OpenAI-compatible chat endpoints; prints one line of JSON.

`-c` users send their next request as soon as the last one was answered, until `-n` are done. No two runs share a prompt unless
`--seed` says so: a server's prefix cache must not be measured by accident. `--shared-prefix` words begin every prompt of a run.

    python -m benchmarks.load http://127.0.0.1:8000 --model NAME -c 4 -n 16 --stream --prompt-words 100

Latencies are in milliseconds: `ttft_ms` from sending to the first piece of content, `itl_ms` between pieces, `e2e_ms` of whole
requests. `tok_s` counts output tokens as `usage` reports them. `cpu_us` is the processor time of the generator itself per
request, in microseconds: what it takes, the server beside it does not get. Answers are read after the clock has stopped.
"""

import argparse
import asyncio
import gc
import random
import sys
import time
from typing import Any
from urllib.parse import urlsplit

import msgspec
import uvloop

from benchmarks.answers import Answer, read_answer
from benchmarks.wire import Connection, Reply, Target

WORDS = (
    "the",
    "of",
    "a",
    "river",
    "and",
    "stone",
    "light",
    "over",
    "under",
    "quick",
    "slow",
    "green",
    "town",
    "letter",
    "engine",
)
PERCENTILES = {"p50": 0.50, "p95": 0.95, "p99": 0.99}


class Workload(msgspec.Struct, frozen=True, kw_only=True):
    """What is sent. Prompt lengths are in words of one token or a little more each.

    In `prompt`, `{words}` stands for the random words of the request; without a `prompt` they are all of it.
    """

    model: str
    users: int = 8
    requests: int = 64
    stream: bool = False
    max_tokens: int = 64
    prompt_words: int = 32
    shared_prefix: int = 0
    prompt: str = "{words}"
    salt: str
    extra: dict[str, Any] = {}

    def body(self, number: int) -> dict[str, Any]:
        """Write request `number`; the same one for the same salt."""
        shared = _words(f"{self.salt}/shared", self.shared_prefix)
        text = " ".join([*shared, *_words(f"{self.salt}/{number}", self.prompt_words), str(number)])
        messages = [{"role": "user", "content": self.prompt.replace("{words}", text)}]
        body: dict[str, Any] = {"model": self.model, "messages": messages, "max_tokens": self.max_tokens, "temperature": 0}
        if self.stream:
            body |= {"stream": True, "stream_options": {"include_usage": True}}
        return body | self.extra


def _words(seed: str, count: int) -> list[str]:
    return random.Random(seed).choices(WORDS, k=count)


async def measure(url: str, workload: Workload, key: str = "none", timeout_s: float = 600.0) -> dict[str, Any]:
    """Send the workload and sum up what came back.

    Args:
        url: of the server, with or without the path of the endpoint.
        timeout_s: per request; one that takes longer counts as an error.
    Raises:
        ValueError: `url` is not on this machine.
    """
    target = target_of(url, key)
    requests = iter([target.post(msgspec.json.encode(workload.body(number))) for number in range(workload.requests)])
    replies: list[Reply] = []

    async def user() -> None:
        connection = Connection(target)
        replies.extend([await connection.ask(request, timeout_s) for request in requests])
        await connection.close()

    began, worked = time.perf_counter(), time.process_time()
    await asyncio.gather(*(user() for _ in range(workload.users)))
    wall_s, worked_s = time.perf_counter() - began, time.process_time() - worked
    figures = summary([read_answer(reply, workload.stream) for reply in replies], workload.users, wall_s)
    return figures | {"cpu_us": round(1e6 * worked_s / max(1, len(replies)), 1)}


def target_of(url: str, key: str) -> Target:
    """Find the chat endpoint of a server.

    Raises:
        ValueError: `url` is not on this machine.
    """
    parts = urlsplit(url)
    if parts.hostname not in ("127.0.0.1", "localhost", "::1"):
        raise ValueError(f"{url} is not on this machine")
    path = parts.path if parts.path.endswith("/completions") else parts.path.rstrip("/") + "/v1/chat/completions"
    return Target(host=parts.hostname, port=parts.port or 80, path=path, key=key)


def summary(answers: list[Answer], users: int, wall_s: float) -> dict[str, Any]:
    """Turn answers into figures; failed requests count as errors and in no latency."""
    good = [answer for answer in answers if answer.ok]
    failed = [answer for answer in answers if not answer.ok]
    gaps = [later - earlier for answer in good for earlier, later in zip(answer.arrivals, answer.arrivals[1:], strict=False)]
    figures = {
        "c": users,
        "n": len(answers),
        "errors": len(failed),
        "wall_s": round(wall_s, 3),
        "rps": round(len(good) / wall_s, 2),
        "tok_s": round(sum(answer.tokens for answer in good) / wall_s, 2),
        "tokens": sum(answer.tokens for answer in good),
        "pieces": sum(len(answer.arrivals) for answer in good),
        "cached_tokens": sum(answer.cached_tokens for answer in good),
        "ttft_ms": percentiles([answer.arrivals[0] for answer in good if answer.arrivals]),
        "itl_ms": percentiles(gaps),
        "e2e_ms": percentiles([answer.e2e_s for answer in good]),
    }
    return figures | ({"first_error": f"{failed[0].status} {failed[0].error}"} if failed else {})


def percentiles(seconds: list[float]) -> dict[str, float | None]:
    """Pick nearest-rank percentiles, in milliseconds; None where nothing was measured."""
    ranked = sorted(seconds)
    last = len(ranked) - 1
    return {
        name: round(1e3 * ranked[min(last, int(q * len(ranked)))], 3) if ranked else None for name, q in PERCENTILES.items()
    }


def main() -> None:
    """Parse the command line, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url")
    parser.add_argument("--model", required=True)
    parser.add_argument("-c", "--users", type=int, default=8, help="requests in flight")
    parser.add_argument("-n", "--requests", type=int, default=64, help="requests in all")
    parser.add_argument("--stream", action="store_true")
    parser.add_argument("--max-tokens", type=int, default=64)
    parser.add_argument("--prompt", default="{words}", help="send this; {words} stands for the random words")
    parser.add_argument("--prompt-words", type=int, default=32, help="random words, different in every request")
    parser.add_argument("--shared-prefix", type=int, default=0, help="random words that every request of this run begins with")
    parser.add_argument("--seed", help="repeat the prompts of another run")
    parser.add_argument("--api-key", default="none")
    parser.add_argument("--timeout-s", type=float, default=600.0)
    parser.add_argument(
        "--extra", default={}, type=lambda text: msgspec.json.decode(text, type=dict[str, Any]), help="JSON for the body"
    )
    options = vars(parser.parse_args())
    url, key, timeout_s, seed = (options.pop(name) for name in ("url", "api_key", "timeout_s", "seed"))
    workload = Workload(**options, salt=seed or str(time.time_ns()))
    gc.disable()  # it would walk all the answers that are kept, again and again
    figures = uvloop.run(measure(url, workload, key, timeout_s))
    print(msgspec.json.encode(figures).decode())
    sys.exit(1 if figures["errors"] else 0)


if __name__ == "__main__":
    main()
