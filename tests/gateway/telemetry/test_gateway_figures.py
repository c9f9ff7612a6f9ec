"""What metrics say beyond single requests: deployments, queues, retries, money, keys, limits, stores."""

import pytest
from prometheus_client.parser import text_string_to_metric_families as parse

from backends.errors import ContextOverflow, Failed, ModelNotFound, Overloaded, TimedOut, Unavailable
from backends.types import Usage
from gateway.call import Trail
from gateway.telemetry.settled import MAX_KEYS
from gateway.telemetry.snapshot import DeploymentFigures, GatewaySnapshot, QueueFigures
from gateway.telemetry.telemetry import Telemetry
from gateway.telemetry.upstream import outcome_of


def read(telemetry: Telemetry) -> dict[str, float]:
    """Samples by how they are written, labels in alphabetical order."""
    found = {}
    for family in parse(telemetry.exposition({})[0].decode()):
        for sample in family.samples:
            labels = ",".join(f"{name}={value}" for name, value in sorted(sample.labels.items()))
            found[f"{sample.name}{{{labels}}}"] = sample.value
    return found


def settle(telemetry: Telemetry, key_id: str = "k1", usage: Usage | None = None, **what: object) -> None:
    """One whole call to the model `a`."""
    trail = Trail()
    for name, value in what.items():
        setattr(trail, name, value)
    observation = telemetry.begin("chat", "a", False)
    observation.finish(usage or Usage(prompt_tokens=7, completion_tokens=3), "stop")
    observation.settle(trail, key_id)


@pytest.fixture
def telemetry() -> Telemetry:
    return Telemetry(["a"])


def test_retries_fallbacks_and_cost_come_from_the_trail(telemetry):
    settle(telemetry, attempts=1)
    settle(telemetry, attempts=3, fallback="b", reason="upstream_error", cost_usd=0.25)
    settle(telemetry, attempts=2, fallback="b", reason="made up by an upstream", cost_usd=0.5)
    found = read(telemetry)
    assert found["baton_retries_total{}"] == 3
    assert found["baton_fallbacks_total{model=a,reason=upstream_error}"] == 1
    assert found["baton_fallbacks_total{model=a,reason=other}"] == 1
    assert found["baton_cost_usd_total{model=a}"] == 0.75


def test_waiting_in_the_queue_is_a_histogram(telemetry):
    for waited_s in (0.0, 0.02, 300.0):
        settle(telemetry, waited_s=waited_s)
    found = read(telemetry)
    where = "endpoint=chat"
    assert found[f"baton_queue_wait_seconds_bucket{{{where},le=0.0,model=a}}"] == 1
    assert found[f"baton_queue_wait_seconds_bucket{{{where},le=0.025,model=a}}"] == 2
    assert found[f"baton_queue_wait_seconds_bucket{{{where},le=+Inf,model=a}}"] == 3
    assert found[f"baton_queue_wait_seconds_sum{{{where},model=a}}"] == pytest.approx(300.02)


def test_tokens_are_counted_by_key(telemetry):
    settle(telemetry, "k1")
    settle(telemetry, "k1")
    settle(telemetry, "")
    assert read(telemetry)["baton_key_tokens_total{key=k1}"] == 20
    assert read(telemetry)["baton_key_tokens_total{key=anonymous}"] == 10


def test_keys_beyond_the_bound_share_a_label(telemetry):
    for number in range(MAX_KEYS + 5):
        settle(telemetry, f"k{number}")
    settle(telemetry, "k0")
    found = read(telemetry)
    keys = [name for name in found if name.startswith("baton_key_tokens_total")]
    assert len(keys) == MAX_KEYS + 1
    assert found["baton_key_tokens_total{key=other}"] == 50
    assert found["baton_key_tokens_total{key=k0}"] == 20


def test_tokens_of_an_answer_that_broke_off_belong_to_its_key(telemetry):
    observation = telemetry.begin("chat", "a", True)
    observation.tokens(4)
    observation.fail("engine_failed", 502)
    observation.settle(Trail(), "k1")
    assert read(telemetry)["baton_key_tokens_total{key=k1}"] == 4


def test_answer_of_a_backend_that_does_not_count_is_counted_here(telemetry):
    observation = telemetry.begin("chat", "a", True)
    observation.tokens(4)
    observation.finish(None, "stop")
    found = read(telemetry)
    assert found["baton_generation_tokens_total{endpoint=chat,model=a}"] == 4
    assert found["baton_requests_in_flight{endpoint=chat,model=a,stream=true}"] == 0


@pytest.mark.parametrize(
    ("code", "kind", "counted"),
    [
        ("rate_limit_exceeded", "requests", "requests"),
        ("rate_limit_exceeded", "tokens", "tokens"),
        ("concurrency", "requests", "concurrency"),
        ("insufficient_quota", "insufficient_quota", "budget"),
        ("rate_limit_exceeded", "made up", None),
        ("upstream_said_so", "server_error", None),
    ],
)
def test_refusals_are_counted_by_limit(telemetry, code, kind, counted):
    telemetry.begin("chat", "a", False).fail(code, 429, kind)
    limited = {name: value for name, value in read(telemetry).items() if name.startswith("baton_limited_total")}
    assert limited == ({} if counted is None else {f"baton_limited_total{{kind={counted}}}": 1})


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (ContextOverflow("x"), "rejected"),
        (ModelNotFound("x"), "rejected"),
        (Overloaded("x"), "overloaded"),
        (Unavailable("x"), "unavailable"),
        (TimedOut("x"), "timeout"),
        (Failed("x"), "failed"),
    ],
)
def test_attempts_are_named_by_how_they_end(error, outcome):
    assert outcome_of(error) == outcome


def test_attempts_are_exported_by_deployment(telemetry):
    series = telemetry.upstream("gpu-1")
    assert telemetry.upstream("gpu-1") is series
    series.outcomes["timeout"] += 2
    series.first_token.observe(0.3)
    found = read(telemetry)
    assert found["baton_upstream_requests_total{deployment=gpu-1,outcome=timeout}"] == 2
    assert found["baton_upstream_requests_total{deployment=gpu-1,outcome=success}"] == 0
    assert found["baton_upstream_time_to_first_token_seconds_bucket{deployment=gpu-1,le=0.25}"] == 0
    assert found["baton_upstream_time_to_first_token_seconds_bucket{deployment=gpu-1,le=0.5}"] == 1


def test_snapshot_is_taken_at_each_scrape(telemetry):
    taken = []

    def snapshot() -> GatewaySnapshot:
        taken.append(len(taken))
        return GatewaySnapshot(
            deployments={
                "gpu-1": DeploymentFigures(breaker="open", is_healthy=False, outstanding=4),
                "gpu-2": DeploymentFigures(breaker="half_open", is_healthy=True, outstanding=0),
            },
            queues={"a": QueueFigures(waiting=(("interactive", len(taken)), ("batch", 9)), refused=(("full", 2),))},
            canaries={"a": 25.0},
            response_cache={"hit": 3, "miss": 5},
            stores={"redis": False},
        )

    telemetry.watch(snapshot, lambda: 0)
    read(telemetry)
    found = read(telemetry)
    assert len(taken) == 2
    assert found["baton_queue_depth{model=a,priority=interactive}"] == 2
    assert found["baton_queue_depth{model=a,priority=batch}"] == 9
    assert found["baton_queue_refused_total{model=a,reason=full}"] == 2
    assert found["baton_breaker_state{deployment=gpu-1}"] == 2
    assert found["baton_breaker_state{deployment=gpu-2}"] == 1
    assert found["baton_deployment_healthy{deployment=gpu-1}"] == 0
    assert found["baton_deployment_healthy{deployment=gpu-2}"] == 1
    assert found["baton_deployment_outstanding{deployment=gpu-1}"] == 4
    assert found["baton_canary_percent{route=a}"] == 25
    assert found["baton_response_cache_total{outcome=hit}"] == 3
    assert found["baton_store_available{store=redis}"] == 0
