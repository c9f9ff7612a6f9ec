"""The rules by themselves, on a clock that the test turns: back-off, giving up, and when silence means a hang."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from backends.child.config import ChildConfig
from backends.child.parent.engine_log import KEPT_LINES, EngineLog
from backends.child.parent.restart_policy import RestartPolicy
from backends.child.parent.vital_signs import TICK_S, VitalSigns

CONFIG = ChildConfig(path="x", hang_timeout_s=5.0, step_timeout_s=120.0, load_timeout_s=300.0)


def test_delays_double_from_a_tenth_of_a_second_up_to_ten() -> None:
    policy = RestartPolicy(max_crashes=100, window_s=1000.0)
    delays = [policy.delay_after_crash(float(now), was_ready=True) for now in range(9)]
    assert delays == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10.0, 10.0]


def test_crashes_outside_the_window_are_forgotten_only_by_a_model_that_worked() -> None:
    worked, never_did = RestartPolicy(3, 10.0), RestartPolicy(3, 10.0)
    for now in range(0, 200, 20):
        assert worked.delay_after_crash(float(now), was_ready=True) == 0.1
    delays = [never_did.delay_after_crash(float(now), was_ready=False) for now in range(0, 60, 20)]
    assert delays == [0.1, 0.2, None]


@given(st.lists(st.tuples(st.floats(0, 100), st.booleans()), max_size=50), st.integers(1, 6))
def test_it_is_given_up_exactly_when_enough_crashes_lie_in_the_window(steps: list[tuple[float, bool]], limit: int) -> None:
    policy, now, crashes = RestartPolicy(limit, 60.0), 0.0, []
    for gap, was_ready in steps:
        now += gap
        crashes = [at for at in crashes if not was_ready or now - at < 60.0] + [now]
        delay = policy.delay_after_crash(now, was_ready=was_ready)
        assert (delay is None) == (len(crashes) >= limit)
        assert delay is None or 0.1 <= delay <= 10.0


def ticks(signs: VitalSigns, start: float, seconds: float) -> float:
    now = start
    while now < start + seconds:
        now += TICK_S
        signs.tick(now)
    return now


def test_silence_is_a_hang_only_after_the_first_sign_of_life() -> None:
    signs = VitalSigns(CONFIG, 0.0)
    now = ticks(signs, 0.0, 100.0)
    assert signs.hang() is None
    signs.heard()
    now = ticks(signs, now, 5.0)
    assert signs.hang() is None
    ticks(signs, now, 0.5)
    assert "no sign of life for 5 s" in signs.hang()


def test_a_gateway_that_did_not_run_itself_does_not_take_its_own_silence_for_a_hang() -> None:
    signs = VitalSigns(CONFIG, 0.0)
    signs.heard()
    signs.tick(3600.0)
    assert signs.hang() is None
    assert not signs.is_late()


def test_a_beating_heart_does_not_excuse_a_step_that_never_ends() -> None:
    signs = VitalSigns(CONFIG, 0.0)
    signs.heard()
    signs.beat(120.0)
    assert signs.hang() is None
    signs.beat(120.5)
    assert "one step for more than 120 s" in signs.hang()


def test_only_a_model_that_loads_can_be_late() -> None:
    late, loaded = VitalSigns(CONFIG, 0.0), VitalSigns(CONFIG, 0.0)
    loaded.ready()
    for signs in (late, loaded):
        ticks(signs, 0.0, 301.0)
    assert late.is_late()
    assert not loaded.is_late()


@given(st.text(), st.lists(st.integers(0, 200), max_size=5))
def test_lines_do_not_depend_on_how_the_bytes_arrive(text: str, cuts: list[int]) -> None:
    data = text.encode("utf-8", "replace")
    whole, pieces = EngineLog("m"), EngineLog("m")
    whole.feed(data, final=True)
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    for start, end in itertools.pairwise(edges):
        pieces.feed(data[start:end])
    pieces.feed(b"", final=True)
    assert pieces.tail() == whole.tail()


def test_only_the_last_lines_are_kept() -> None:
    log = EngineLog("m")
    log.feed(b"".join(b"line %d\n" % number for number in range(1000)))
    lines = log.tail().split("\n")
    assert (len(lines), lines[-1]) == (KEPT_LINES, "line 999")
