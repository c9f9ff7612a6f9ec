"""Streams while long prompts come, one after another: what do the prompts do to the streams? Prints one line of JSON.

    python -m benchmarks.interruptions http://127.0.0.1:8000 --model NAME -c 4 --max-tokens 300 --long-words 900

Each of the `-c` users streams one answer, and one more user sends long prompts with short answers until the last stream has
ended. The figures are those of `benchmarks.load` for the streams; `prompts` counts the long ones that were answered meanwhile.
"""

import argparse
import asyncio
import gc
import itertools
import sys
import time
from typing import Any

import msgspec
import uvloop

from benchmarks.answers import Answer, read_answer
from benchmarks.load import Workload, measure, target_of
from benchmarks.wire import Connection

LONG_ANSWER = 16
"""New tokens after a long prompt."""


async def interrupted(url: str, streams: Workload, long: Workload, timeout_s: float = 600.0) -> dict[str, Any]:
    """Send both workloads, the long one until the streams have ended. A long prompt that failed counts as an error.

    Raises:
        ValueError: `url` is not on this machine.
    """
    answers: list[Answer] = []
    interrupting = asyncio.create_task(_interrupt(url, long, timeout_s, answers))
    try:
        figures = await measure(url, streams, timeout_s=timeout_s)
    finally:
        interrupting.cancel()
        await asyncio.wait([interrupting])
    if not interrupting.cancelled():
        interrupting.result()
    failed = [answer for answer in answers if not answer.ok]
    if failed:
        figures["errors"] += len(failed)
        figures.setdefault("first_error", f"{failed[0].status} {failed[0].error}")
    return figures | {"prompts": len(answers) - len(failed)}


async def _interrupt(url: str, long: Workload, timeout_s: float, answers: list[Answer]) -> None:
    """Send one prompt after the other, until one fails or nobody wants more."""
    target = target_of(url, "none")
    connection = Connection(target)
    try:
        for number in itertools.count():
            reply = await connection.ask(target.post(msgspec.json.encode(long.body(number))), timeout_s)
            answers.append(read_answer(reply, stream=True))
            if not answers[-1].ok:
                break
    finally:
        await connection.close()


def main() -> None:
    """Parse the command line, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url")
    parser.add_argument("--model", required=True)
    parser.add_argument("-c", "--users", type=int, default=4, help="streams, all at once")
    parser.add_argument("--max-tokens", type=int, default=300, help="of each stream")
    parser.add_argument("--prompt-words", type=int, default=100, help="of each stream")
    parser.add_argument("--long-words", type=int, default=900, help="of each prompt that interrupts")
    parser.add_argument("--seed", help="repeat the prompts of another run")
    parser.add_argument(
        "--extra", default={}, type=lambda text: msgspec.json.decode(text, type=dict[str, Any]), help="JSON for the body"
    )
    options = parser.parse_args()
    salt = options.seed or str(time.time_ns())
    common = {"model": options.model, "stream": True, "extra": options.extra}
    streams = Workload(
        **common,
        users=options.users,
        requests=options.users,
        max_tokens=options.max_tokens,
        prompt_words=options.prompt_words,
        salt=f"{salt}/streams",
    )
    long = Workload(**common, max_tokens=LONG_ANSWER, prompt_words=options.long_words, salt=f"{salt}/long")
    gc.disable()  # it would walk all the answers that are kept, again and again
    figures = uvloop.run(interrupted(options.url, streams, long))
    print(msgspec.json.encode(figures).decode())
    sys.exit(1 if figures["errors"] else 0)


if __name__ == "__main__":
    main()
