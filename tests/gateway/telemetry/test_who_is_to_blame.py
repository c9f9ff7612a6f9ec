"""Every error code of this project has somebody to blame."""

import re
from pathlib import Path

import pytest

from gateway.telemetry.blame import BLAME, blame_for, known_code
from gateway.telemetry.telemetry import Telemetry

ROOT = Path(__file__).resolve().parents[3]
CODE = re.compile(r'\bcode(?:: [^=\n]*)? ?= ?"([a-z_]+)"')
KINDS = ("caller_", "policy_", "upstream_", "gateway_")
PARTS = ("admission", "context", "dispatch", "keys/permission.py", "limits", "middleware", "routing", "translate", "errors.py")
"""Of the gateway: those that stand between a request and its model."""


def test_every_code_in_the_source_is_in_the_table():
    places = [ROOT / "backends", ROOT / "edge", *(ROOT / "gateway" / part for part in PARTS)]
    files = [file for place in places for file in ([place] if place.is_file() else place.rglob("*.py"))]
    codes = {code for file in files for code in CODE.findall(file.read_text())}
    assert len(codes) > 30
    assert codes <= BLAME.keys()


def test_blame_begins_with_a_party():
    assert all(blame.startswith(KINDS) for blame in BLAME.values())


@pytest.mark.parametrize(
    ("code", "status", "blame"),
    [
        ("rate_limit_exceeded", 429, "policy_rate"),
        ("upstream_timeout", 504, "upstream_timeout"),
        ("engine_overloaded", 503, "gateway_capacity"),
        ("client_closed_request", 499, "caller_gone"),
        ("something_new", 400, "caller_request"),
        ("something_new", 429, "policy_rate"),
        ("something_new", 500, "gateway_bug"),
        ("something_new", 503, "upstream_unavailable"),
    ],
)
def test_unknown_codes_are_blamed_by_their_status(code, status, blame):
    assert blame_for(code, status) == blame


def test_codes_of_strangers_become_no_labels():
    assert [known_code(code) for code in ("timeout", "x" * 1000, None)] == ["timeout", "other", "none"]


def test_failed_requests_are_exported_by_blame():
    telemetry = Telemetry(["a"])
    telemetry.begin("chat", "a", False).fail("upstream_error", 502)
    telemetry.begin("chat", "a", False).fail("engine_crashed", 502)
    telemetry.begin("chat", "a", False).cancelled()
    text = telemetry.exposition({})[0].decode()
    assert 'baton_request_errors_total{blame="upstream_failed",endpoint="chat",model="a"} 2.0' in text
    assert 'baton_request_errors_total{blame="caller_gone",endpoint="chat",model="a"} 1.0' in text
