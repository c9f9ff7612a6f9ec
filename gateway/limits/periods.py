"""The periods that budgets are for: a UTC day, a UTC month, or all time. A period's name sorts and never changes."""

from datetime import UTC, datetime, timedelta
from typing import Literal

Period = Literal["day", "month", "total"]

TOTAL = "total"


def period_name(period: Period, now: float) -> str:
    """Name the period that holds `now` (Unix seconds): `2026-11-30`, `2026-11` or `total`."""
    if period == "total":
        return TOTAL
    return datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%d" if period == "day" else "%Y-%m")


def period_end(period: Period, now: float) -> float | None:
    """Say when the period that holds `now` ends, in Unix seconds; None for never."""
    if period == "total":
        return None
    start = datetime.fromtimestamp(now, UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    if period == "day":
        return (start + timedelta(days=1)).timestamp()
    # 32 days after the first of a month lie in the next one.
    return (start.replace(day=1) + timedelta(days=32)).replace(day=1).timestamp()
