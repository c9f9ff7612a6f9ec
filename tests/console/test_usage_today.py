"""What keys used today: counted by key, most tokens first, anew each day, and bounded."""

from gateway.telemetry.usage import MAX_KEYS, KeyUsage, UsageToday

NOON = 1_800_014_400.0  # 2027-01-15 12:00 UTC
HOUR = 3600.0


class Clock:
    def __init__(self) -> None:
        self.now = NOON

    def __call__(self) -> float:
        return self.now


def test_requests_of_a_key_are_added_up_and_the_largest_comes_first() -> None:
    usage = UsageToday(Clock())
    usage.add("key_a", "alice", 10, 0.5)
    usage.add("", "anonymous", 500, 0.0)
    usage.add("key_a", "alice", 30, 0.25)
    assert usage.list() == [
        KeyUsage(key_id="", name="anonymous", requests=1, tokens=500),
        KeyUsage(key_id="key_a", name="alice", requests=2, tokens=40, cost_usd=0.75),
    ]


def test_the_day_ends_at_midnight_utc_whether_requests_come_or_not() -> None:
    clock = Clock()
    usage = UsageToday(clock)
    usage.add("key_a", "alice", 10, 0.5)
    assert usage.since == NOON
    clock.now = NOON + 12 * HOUR - 1
    assert len(usage.list()) == 1
    clock.now += 1
    assert usage.list() == []
    assert usage.since == NOON + 12 * HOUR
    clock.now += 50 * HOUR
    usage.add("key_b", "bob", 1, 0.0)
    assert [key.name for key in usage.list()] == ["bob"]
    assert usage.since == NOON + 60 * HOUR


def test_keys_beyond_the_bound_are_counted_together_and_forgotten_with_the_day() -> None:
    clock = Clock()
    usage = UsageToday(clock)
    for number in range(MAX_KEYS + 5):
        usage.add(f"key_{number}", "many", 1, 0.5)
    usage.add("key_0", "many", 1, 0.0)
    listed = usage.list()
    assert len(listed) == MAX_KEYS + 1
    assert listed[0].tokens == 2
    assert listed[-1] == KeyUsage(key_id="", name="", requests=5, tokens=5, cost_usd=2.5)
    clock.now += 24 * HOUR
    assert usage.list() == []
