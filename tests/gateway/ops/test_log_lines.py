"""What stderr gets."""

import io
import json
import logging
import socket
from urllib.parse import urlsplit

import pytest

from gateway.telemetry.logs import MAX_TEXT_CHARS, JsonFormatter, TextFormatter, configure_logging

SECRET = "my-very-secret-prompt"
KEY = "my-very-secret-key"
CHAT = {"model": "fake", "messages": [{"role": "user", "content": SECRET}]}
CONFIG = """
[server]
log_level = "debug"

[models.fake]
engine = "fake"
replies = [{ text = "my-very-secret-answer" }]
"""


def test_every_line_is_json_with_ids_and_without_secrets(start):
    with start(CONFIG, BATON_API_KEY=KEY) as gateway:
        headers = {"authorization": f"Bearer {KEY}", "x-request-id": "seen-1"}
        assert gateway.client.post("/v1/chat/completions", json=CHAT, headers=headers).status_code == 200
        assert gateway.client.post("/v1/chat/completions", content=f'{{"x":"{SECRET}', headers=headers).status_code == 400
        assert gateway.client.get(f"/v1/models?q={SECRET}", headers={"x-api-key": f"wrong-{KEY}"}).status_code == 401
        url = urlsplit(gateway.url)
        with socket.create_connection((url.hostname, url.port)) as connection:
            connection.sendall(b"no http at all\r\n\r\n")
            connection.recv(1000)
        assert gateway.stop() == 0
        log = gateway.log()
    lines = [json.loads(line) for line in log.splitlines()]
    assert all({"@timestamp", "log.level", "log.logger", "message", "service.name"} <= line.keys() for line in lines)
    access = [line for line in lines if line["log.logger"] == "gateway.access"]
    assert [line["http.response.status_code"] for line in access] == [200, 400, 401]
    assert access[0]["http.request.id"] == "seen-1"
    assert access[0]["http.request.method"] == "POST"
    assert access[0]["url.path"] == "/v1/chat/completions"
    assert access[0]["event.duration"] > 0
    assert access[0]["event.outcome"] == "success"
    assert access[0]["gen_ai.request.model"] == "fake"
    assert access[0]["gen_ai.usage.output_tokens"] == len("my-very-secret-answer")
    assert access[0]["baton.deployment"] == "fake"
    assert access[0]["baton.key.id"].startswith("static_")
    assert access[1]["event.outcome"] == "failure"
    assert access[2]["http.request.id"].startswith("req_")
    for secret in (SECRET, KEY, "my-very-secret-answer"):
        assert secret not in log


def test_no_line_is_lost_when_the_gateway_is_stopped(start):
    with start() as gateway:
        for number in range(200):
            gateway.client.get("/v1/models", headers={"x-request-id": f"seen-{number}"})
        assert gateway.stop() == 0
        lines = [json.loads(line) for line in gateway.log().splitlines()]
    ids = [line["http.request.id"] for line in lines if line["log.logger"] == "gateway.access"]
    assert ids == [f"seen-{number}" for number in range(200)]


def test_client_that_leaves_is_logged_as_499_or_incomplete(start):
    slow = CONFIG.replace('engine = "fake"', 'engine = "fake"\ntoken_delay_s = 0.5')
    with start(slow) as gateway:
        with gateway.client.stream("POST", "/v1/chat/completions", json={**CHAT, "stream": True}) as response:
            assert next(response.iter_raw())
        gateway.client.close()
        assert gateway.stop() == 0
        (line,) = [json.loads(line) for line in gateway.log().splitlines() if '"gateway.access"' in line]
    assert line["event.outcome"] == "failure"


def test_health_checks_are_logged_only_at_debug(start):
    with start(CONFIG.replace('"debug"', '"info"')) as gateway:
        assert gateway.client.get("/health/ready").status_code == 200
        assert gateway.client.get("/metrics").status_code == 200
        assert gateway.stop() == 0
        assert gateway.log() == ""


def record(message: str, *arguments: object, **extra: object) -> logging.LogRecord:
    made = logging.getLogger("x").makeRecord("x", logging.WARNING, "f", 1, message, arguments, None)
    made.__dict__.update(extra)
    return made


@pytest.mark.parametrize("nasty", ["a\nb", 'quote " and \\', "\x1b[31m", "\u2028", "\ud800", "é漢"])
def test_message_cannot_break_its_line(nasty):
    assert json.loads(JsonFormatter().format(record("%s", nasty)))["log.level"] == "warning"
    text = TextFormatter().format(record("%s", nasty))
    assert len(text.splitlines()) == 1
    assert "\x1b" not in text


def test_long_message_is_cut():
    assert len(JsonFormatter().format(record("x" * 1_000_000))) < MAX_TEXT_CHARS + 500


def test_stack_trace_is_part_of_the_line():
    try:
        raise ValueError("broken")
    except ValueError as error:
        line = JsonFormatter().format(record("bad", exc_info=(ValueError, error, error.__traceback__)))
    assert json.loads(line)["error.type"] == "ValueError"
    assert "broken" in json.loads(line)["error.stack_trace"]


@pytest.fixture
def root_logger():
    root = logging.getLogger()
    before = root.handlers[:], root.level
    yield root
    root.handlers[:], level = before
    root.setLevel(level)


@pytest.mark.parametrize("style", ["json", "text"])
def test_level_and_style_are_configured(root_logger, style):
    stream = io.StringIO()
    configure_logging("warning", style, stream)
    logging.getLogger("gateway").info("quiet")
    logging.getLogger("gateway").warning("loud", extra={"fields": {"url.path": "/x"}})
    logging.getLogger("httpx").info("quiet too")
    (line,) = stream.getvalue().splitlines()
    assert "loud" in line
    assert "/x" in line
    assert line.startswith("{") == (style == "json")
