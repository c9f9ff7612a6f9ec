"""What tokens cost, when budget periods end, and how durations are spelled."""

from datetime import UTC, datetime

import pytest

from backends.types import Usage
from gateway.limits.levels import Level, duration
from gateway.limits.periods import Period, period_end, period_name
from gateway.limits.prices import Price, cost


def unix(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    ("price", "usage", "dollars"),
    [
        (Price(), Usage(10**6, 10**6), 0.0),
        (Price(input_per_mtok=2.0, output_per_mtok=8.0), Usage(500_000, 250_000), 3.0),
        (Price(input_per_mtok=2.0, cached_input_per_mtok=0.5), Usage(1_000_000, 0, 400_000), 1.4),
        (Price(input_per_mtok=2.0), Usage(1_000_000, 0, 400_000), 2.0),
        (Price(input_per_mtok=2.0, cached_input_per_mtok=0.0), Usage(10, 0, 50), 0.0),
    ],
)
def test_cost(price: Price, usage: Usage, dollars: float) -> None:
    assert cost(usage, price) == pytest.approx(dollars)


@pytest.mark.parametrize(
    ("period", "at", "name", "end"),
    [
        ("day", "2026-11-30T23:59:59", "2026-11-30", "2026-12-01"),
        ("day", "2028-02-28T00:00:00", "2028-02-28", "2028-02-29"),
        ("month", "2026-12-31T12:00:00", "2026-12", "2027-01-01"),
        ("month", "2026-01-31T12:00:00", "2026-01", "2026-02-01"),
        ("month", "2026-02-01T00:00:00", "2026-02", "2026-03-01"),
    ],
)
def test_periods_are_those_of_the_utc_calendar(period: Period, at: str, name: str, end: str) -> None:
    assert period_name(period, unix(at)) == name
    assert period_end(period, unix(at)) == unix(end)


def test_a_total_never_ends() -> None:
    assert period_name("total", 0.0) == "total"
    assert period_end("total", 0.0) is None


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0ms"),
        (0.0121, "13ms"),
        (0.012, "12ms"),
        (0.9999, "1s"),
        (1, "1s"),
        (1.5, "1.5s"),
        (59.999, "59.999s"),
        (60, "1m0s"),
        (90.2, "1m31s"),
        (360, "6m0s"),
        (7200, "120m0s"),
    ],
)
def test_durations_are_spelled_as_openai_does(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_a_level_says_how_long_to_wait() -> None:
    level = Level(60, 10)
    assert level.has(10)
    assert not level.has(11)
    assert level.wait_s(10) == 0
    assert level.wait_s(25) == pytest.approx(15)
    assert level.wait_s(1000) == pytest.approx(50)
