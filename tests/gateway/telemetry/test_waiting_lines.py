"""The writer of log lines: order, delay, and nothing lost."""

import asyncio
import io
import json
import logging
import subprocess
import sys
from threading import Thread

import pytest

from gateway.telemetry.lines import FLUSH_AFTER_S, FLUSH_AT_BYTES, LineHandler
from gateway.telemetry.logs import JsonFormatter, configure_logging, log_fields


class Pipe(io.StringIO):
    """Counts writes."""

    writes = 0

    def write(self, text: str) -> int:
        self.writes += 1
        return super().write(text)


@pytest.fixture
def pipe() -> Pipe:
    return Pipe()


@pytest.fixture
def handler(pipe) -> LineHandler:
    made = LineHandler(pipe)
    made.setFormatter(JsonFormatter())
    return made


@pytest.fixture
def root_logger():
    root = logging.getLogger()
    before = root.handlers[:], root.level
    yield root
    root.handlers[:], level = before
    root.setLevel(level)


def record(message: str) -> logging.LogRecord:
    return logging.getLogger("x").makeRecord("x", logging.WARNING, "f", 1, message, (), None)


async def test_lines_wait_and_are_written_together(handler, pipe):
    for number in range(10):
        handler.write_soon(b"%d" % number)
    assert pipe.getvalue() == ""
    await asyncio.sleep(FLUSH_AFTER_S * 2)
    assert pipe.getvalue().split() == [str(number) for number in range(10)]
    assert pipe.writes == 1


async def test_record_takes_what_waits_with_it(handler, pipe):
    handler.write_soon(b'{"message":"first"}')
    handler.emit(record("second"))
    handler.write_soon(b'{"message":"third"}')
    handler.flush()
    assert [json.loads(line)["message"] for line in pipe.getvalue().splitlines()] == ["first", "second", "third"]


async def test_much_is_not_held_back(handler, pipe):
    line = b"x" * 1000
    for _ in range(FLUSH_AT_BYTES // 1001 + 1):
        handler.write_soon(line)
    assert len(pipe.getvalue()) >= FLUSH_AT_BYTES


def test_without_a_loop_nothing_waits(handler, pipe):
    handler.write_soon(b"now")
    assert pipe.getvalue() == "now\n"


def test_loop_that_ended_early_holds_nothing_up(handler, pipe):
    async def write(wait_s: float) -> str:
        handler.write_soon(b"line")
        await asyncio.sleep(wait_s)
        return pipe.getvalue()

    assert asyncio.run(write(0)) == ""
    assert asyncio.run(write(FLUSH_AFTER_S * 2)) == "line\nline\n"


async def test_threads_may_log_at_the_same_time(handler, pipe):
    def work() -> None:
        for _ in range(200):
            handler.handle(record("from a thread"))

    threads = [Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(200):
        handler.write_soon(b'{"message":"from the loop"}')
        await asyncio.sleep(0)
    for thread in threads:
        thread.join()
    handler.flush()
    messages = [json.loads(line)["message"] for line in pipe.getvalue().splitlines()]
    assert messages.count("from a thread") == 600
    assert messages.count("from the loop") == 200


def test_closed_stream_harms_nobody(handler, pipe):
    pipe.close()
    handler.write_soon(b"line")
    handler.emit(record("lost"))


def test_fast_line_is_the_slow_line(root_logger):
    fast, slow = io.StringIO(), io.StringIO()
    fields = {"url.path": "/é", "n": 1, "nasty": "\ud800", "none": None}
    configure_logging("info", "json", fast)
    log_fields(logging.getLogger("gateway.access"), logging.INFO, "GET /é 200", fields)
    configure_logging("info", "json", slow)
    logging.getLogger("gateway.access").info("GET /é 200", extra={"fields": fields})
    (one,), (other,) = [[json.loads(line) for line in stream.getvalue().splitlines()] for stream in (fast, slow)]
    assert len(one.pop("@timestamp")) == len(other.pop("@timestamp"))
    assert one == other
    assert list(one) == list(other)


def test_text_style_goes_the_usual_way(root_logger):
    stream = io.StringIO()
    configure_logging("info", "text", stream)
    log_fields(logging.getLogger("gateway.access"), logging.INFO, "GET / 200", {"n": 1})
    assert "gateway.access: GET / 200 n=1" in stream.getvalue()


def test_timestamps_have_milliseconds_in_utc():
    made = record("x")
    made.created = 1764508000.0079
    assert json.loads(JsonFormatter().format(made))["@timestamp"] == "2025-11-30T13:06:40.007Z"


@pytest.mark.parametrize("ending", ["", "raise SystemExit(3)", "raise RuntimeError('bug')"])
def test_lines_that_wait_are_written_at_exit(ending):
    program = f"""
import asyncio, logging
from gateway.telemetry.logs import configure_logging, log_fields
configure_logging("info", "json")
async def main():
    for number in range(100):
        log_fields(logging.getLogger("gateway.access"), logging.INFO, str(number), {{"é": "漢"}})
    {ending}
asyncio.run(main())
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=60)
    lines = [json.loads(line) for line in ran.stderr.decode().splitlines() if line.startswith("{")]
    assert [line["message"] for line in lines] == [str(number) for number in range(100)]
    assert lines[0]["é"] == "漢"
