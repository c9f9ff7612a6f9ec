"""Related requests meet, nobody is buried under them, and only those move whose place is gone."""

from collections import Counter
from collections.abc import Sequence
from random import Random

import hypothesis.strategies as st
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from gateway.routing.affinity import LOAD_FACTOR, PrefixAffinity, SessionAffinity
from gateway.routing.deployment import Attempt
from gateway.routing.hashing import stable_hash, uniform
from gateway.routing.seat import Seat
from tests.gateway.routing.scene import Clock, call, make_deployment


def table(clock: Clock, names: Sequence[str], weights: Sequence[float] | None = None) -> list[Seat]:
    return [
        Seat(make_deployment(clock, name), weight=weight)
        for name, weight in zip(names, weights or [1.0] * len(names), strict=True)
    ]


def places(seats: list[Seat], sessions: int) -> dict[str, str]:
    policy = SessionAffinity(Random(1))
    ids = [f"session-{number}" for number in range(sessions)]
    return {name: policy.choose(call(session=name), seats).deployment.name for name in ids}


def test_hashes_are_the_same_in_every_process() -> None:
    assert stable_hash("conversation") == 4664648696733276498
    assert uniform(1, 2) == 0.11845963771618584


@given(st.integers(), st.integers(0, 2**64 - 1))
def test_uniform_numbers_stay_between_their_limits(value: int, seed: int) -> None:
    assert 0 < uniform(value, seed) < 1


@given(st.lists(st.sampled_from("abcdefgh"), min_size=2, max_size=8, unique=True), st.data())
@hypothesis_settings(deadline=None, max_examples=30)
def test_only_the_sessions_of_a_removed_member_move(names: list[str], data: st.DataObject) -> None:
    weights = data.draw(st.lists(st.floats(0.1, 10), min_size=len(names), max_size=len(names)))
    seats = table(Clock(), names, weights)
    gone = data.draw(st.sampled_from(names))
    before, after = places(seats, 100), places([seat for seat in seats if seat.deployment.name != gone], 100)
    assert {name for name in before if before[name] != after[name]} == {name for name in before if before[name] == gone}


def test_sessions_are_spread_by_weight() -> None:
    counts = Counter(places(table(Clock(), "abc", [1, 2, 5]), 8000).values())
    assert 850 < counts["a"] < 1150
    assert 1850 < counts["b"] < 2150


def test_without_a_session_weights_decide() -> None:
    seats = table(Clock(), "ab", [1, 3])
    policy = SessionAffinity(Random(1))
    assert Counter(policy.choose(call(), seats).deployment.name for _ in range(400)) == {"a": 100, "b": 300}


def test_the_longest_known_prefix_decides() -> None:
    clock = Clock()
    seats = table(clock, "abcd")
    policy = PrefixAffinity(Random(1), clock)
    first = policy.choose(call(prefix=(1, 2, 3)), seats)
    others = [seat for seat in seats if seat is not first]
    # The same beginning, but told elsewhere while the first place was out of reach.
    elsewhere = policy.choose(call(prefix=(1, 2, 9)), others)
    assert policy.choose(call(prefix=(1, 2, 9, 10)), seats) is elsewhere
    assert policy.choose(call(prefix=(1, 2, 3, 4)), seats) is first


def test_unknown_prompts_with_the_same_beginning_meet_in_every_gateway() -> None:
    clock = Clock()
    choices = {
        PrefixAffinity(Random(seed), clock).choose(call(prefix=(5, seed)), table(clock, "abcd")).deployment.name
        for seed in range(20)
    }
    assert len(choices) == 1


def test_what_was_seen_long_ago_is_forgotten() -> None:
    clock = Clock()
    seats = table(clock, "abcd")
    policy = PrefixAffinity(Random(1), clock)
    usual = policy.choose(call(prefix=(1,)), seats)
    others = [seat for seat in seats if seat is not usual]
    moved = policy.choose(call(prefix=(1,)), others)
    assert policy.choose(call(prefix=(1,)), seats) is moved
    clock.now += 601
    assert policy.choose(call(prefix=(1,)), seats) is usual


def test_memory_of_prefixes_is_bounded() -> None:
    clock = Clock()
    seats = table(clock, "ab")
    policy = PrefixAffinity(Random(1), clock)
    for start in range(0, 100_000, 50):
        policy.choose(call(prefix=tuple(range(start, start + 50))), seats)
    policy.choose(call(prefix=tuple(range(1_000_000))), seats)
    assert len(policy._known) == 65_536


def test_a_busy_holder_passes_requests_on_to_one_place_at_a_time() -> None:
    clock = Clock()
    seats = table(clock, "abcd")
    policy = PrefixAffinity(Random(1), clock)
    for _ in range(100):
        policy.choose(call(prefix=(1,)), seats).begin(call())
    loads = sorted(seat.deployment.outstanding for seat in seats)
    assert sum(loads) == 100
    assert loads[-1] <= LOAD_FACTOR * 25 + 2


def test_without_a_prefix_load_decides() -> None:
    clock = Clock()
    seats = table(clock, "ab")
    seats[0].begin(call())
    assert PrefixAffinity(Random(1), clock).choose(call(), seats) is seats[1]


class PrefixLife(RuleBasedStateMachine):
    """Requests with few beginnings come and go; members come and go too."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = Clock()
        self.seats = table(self.clock, "abcde", [1, 1, 2, 0.5, 1])
        self.present = list(self.seats)
        self.policy = PrefixAffinity(Random(2), self.clock)
        self.running: list[Attempt] = []

    @rule(prefix=st.lists(st.integers(0, 3), min_size=1, max_size=4))
    def request(self, prefix: list[int]) -> None:
        running = sum(seat.deployment.outstanding for seat in self.present)
        weight = sum(seat.weight for seat in self.present)
        seat = self.policy.choose(call(prefix=tuple(prefix)), self.present)
        assert seat in self.present
        assert seat.deployment.outstanding <= LOAD_FACTOR * running * seat.weight / weight + 1
        self.running.append(seat.begin(call()))

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        self.running.pop(data.draw(st.integers(0, len(self.running) - 1))).succeeded()

    @rule(present=st.sets(st.integers(0, 4), min_size=1))
    def members_change(self, present: set[int]) -> None:
        self.present = [self.seats[place] for place in sorted(present)]

    @rule(seconds=st.floats(0, 400))
    def time_passes(self, seconds: float) -> None:
        self.clock.now += seconds

    @invariant()
    def books_balance(self) -> None:
        assert sum(seat.deployment.outstanding for seat in self.seats) == len(self.running)


TestPrefixLife = PrefixLife.TestCase
TestPrefixLife.settings = hypothesis_settings(max_examples=60, stateful_step_count=50, deadline=None)
