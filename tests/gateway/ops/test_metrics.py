"""What Prometheus reads."""

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse

from backends.types import Health, Usage
from gateway.telemetry.telemetry import Telemetry

COUNTERS = {"steps_total": 7.0, "prompt_tokens_total": 9.0, "prefix_cache_hit_tokens_total": 4.0}
CHAT = {"model": "fake", "messages": [{"role": "user", "content": "hi"}]}


def samples(text: str, parser=parse) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    found = {}
    for family in parser(text):
        for sample in family.samples:
            key = (sample.name, tuple(sorted(sample.labels.items())))
            assert key not in found, f"{key} is exported twice"
            found[key] = sample.value
    return found


def read(telemetry: Telemetry, **healths: Health) -> dict:
    return samples(telemetry.exposition(healths)[0].decode())


def value(found: dict, name: str, **labels: str) -> float | None:
    return found.get((name, tuple(sorted(labels.items()))))


@pytest.fixture
def telemetry() -> Telemetry:
    return Telemetry(["a", "b"], version="1.2.3")


def test_request_is_counted_with_its_tokens_under_both_names(telemetry):
    observation = telemetry.begin("chat", "a", True)
    assert value(read(telemetry), "baton_requests_in_flight", endpoint="chat", model="a", stream="true") == 1
    for _ in range(3):
        observation.tokens(1)
    observation.finish(Usage(prompt_tokens=10, completion_tokens=3, cached_tokens=4), "stop")
    found = read(telemetry)
    where = {"endpoint": "chat", "model": "a"}
    assert value(found, "baton_requests_in_flight", stream="true", **where) == 0
    assert value(found, "baton_requests_total", status="200", error_code="", **where) == 1
    assert value(found, "baton_prompt_tokens_total", **where) == 10
    assert value(found, "baton_cached_prompt_tokens_total", **where) == 4
    assert value(found, "baton_generation_tokens_total", **where) == 3
    assert value(found, "baton_time_to_first_token_seconds_count", **where) == 1
    assert value(found, "baton_inter_token_latency_seconds_count", **where) == 2
    assert value(found, "baton_request_duration_seconds_count", **where) == 1
    assert value(found, "vllm:prompt_tokens_total", model_name="a") == 10
    assert value(found, "vllm:generation_tokens_total", model_name="a") == 3
    assert value(found, "vllm:time_to_first_token_seconds_count", model_name="a") == 1
    assert value(found, "vllm:inter_token_latency_seconds_count", model_name="a") == 2
    assert value(found, "vllm:e2e_request_latency_seconds_bucket", model_name="a", le="+Inf") == 1
    assert value(found, "vllm:request_success_total", model_name="a", finished_reason="stop") == 1


def test_several_tokens_in_one_delta_are_several_observations(telemetry):
    observation = telemetry.begin("chat", "a", False)
    for count in (1, 0, 3):
        observation.tokens(count)
    assert value(read(telemetry), "baton_inter_token_latency_seconds_count", endpoint="chat", model="a") == 3


@pytest.mark.parametrize("first", ["finish", "fail", "cancelled"])
@pytest.mark.parametrize("second", ["finish", "fail", "cancelled"])
def test_only_the_first_end_counts(telemetry, first, second):
    observation = telemetry.begin("chat", "a", True)
    ends = {
        "finish": lambda: observation.finish(Usage(1, 1, 0), "stop"),
        "fail": lambda: observation.fail("engine_failed", 502),
        "cancelled": observation.cancelled,
    }
    ends[first]()
    before = read(telemetry)
    ends[second]()
    moved = {key for key, number in read(telemetry).items() if before.get(key) != number and not key[0].startswith("process_")}
    assert not moved
    status = {"finish": "200", "fail": "502", "cancelled": "499"}[first]
    ended = {dict(labels)["status"]: number for (name, labels), number in before.items() if name == "baton_requests_total"}
    assert ended == {status: 1}


def test_aliases_sum_over_endpoints(telemetry):
    for endpoint in ("chat", "completions"):
        telemetry.begin(endpoint, "a", False).finish(Usage(2, 0, 0))
    assert value(read(telemetry), "vllm:prompt_tokens_total", model_name="a") == 4


def test_clients_cannot_create_label_values(telemetry):
    telemetry.begin("chat", "nope", False).fail("model_not_found", 404)
    telemetry.response("BREW", 405)
    known = len(read(telemetry))
    for number in range(50):
        telemetry.begin("chat", f"nope-{number}", False).fail(f"code-{number}" if number else "other", 404)
        telemetry.response(f"BREW{number}", 405)
    found = read(telemetry)
    assert value(found, "baton_requests_total", endpoint="chat", model="unknown", status="404", error_code="other") == 50
    assert len(found) <= known + 2  # the first "other" code, with its creation time


def test_engine_figures_are_exported_per_model(telemetry):
    a = Health(
        state="ready",
        running=1,
        waiting=2,
        slots=8,
        gauges={"kv_cells_used": 5, "kv_cells_total": 20},
        counters=COUNTERS,
    )
    found = read(telemetry, a=a, b=Health(state="loading", gauges={"kv_cells_used": 1}))
    assert value(found, "baton_engine_state", model="a", state="ready") == 1
    assert value(found, "baton_engine_state", model="b", state="ready") == 0
    assert value(found, "baton_engine_state", model="b", state="loading") == 1
    assert value(found, "baton_engine_running", model="a") == 1
    assert value(found, "baton_engine_waiting", model="a") == 2
    assert value(found, "baton_engine_slots", model="a") == 8
    assert value(found, "baton_engine_kv_cells_used", model="a") == 5
    assert value(found, "baton_engine_kv_cells_used", model="b") == 1
    assert value(found, "baton_engine_steps_total", model="a") == 7
    assert value(found, "vllm:num_requests_running", model_name="a") == 1
    assert value(found, "vllm:num_requests_waiting", model_name="a") == 2
    assert value(found, "vllm:kv_cache_usage_perc", model_name="a") == 0.25
    assert value(found, "vllm:prefix_cache_queries_total", model_name="a") == 9
    assert value(found, "vllm:prefix_cache_hits_total", model_name="a") == 4


def test_figure_that_is_no_metric_name_or_is_taken_is_left_out(telemetry):
    health = Health(
        state="ready", running=3, gauges={"bad name": 1, 'x"} 1\ny': 1, "running": 9, "": 1}, counters={"state_total": 1}
    )
    found = read(telemetry, a=health)
    assert value(found, "baton_engine_running", model="a") == 3
    assert {name for name, _ in found if name.startswith("baton_engine_")} == {
        "baton_engine_state",
        "baton_engine_running",
        "baton_engine_waiting",
        "baton_engine_slots",
    }


def test_scrape_of_a_real_server_in_both_formats(start):
    with start() as gateway:
        assert gateway.client.post("/v1/chat/completions", json=CHAT).status_code == 200
        for number in range(5):
            assert gateway.client.post("/v1/chat/completions", json={**CHAT, "model": f"nope-{number}"}).status_code == 404
        plain = gateway.client.get("/metrics")
        assert plain.headers["content-type"].startswith("text/plain; version=0.0.4")
        openmetrics = gateway.client.get("/metrics", headers={"accept": "application/openmetrics-text; version=1.0.0"})
        assert openmetrics.headers["content-type"].startswith("application/openmetrics-text")
        for found in (samples(plain.text), samples(openmetrics.text, parse_openmetrics)):
            where = {"endpoint": "chat", "model": "fake"}
            assert value(found, "baton_requests_total", status="200", error_code="", **where) == 1
            assert value(found, "baton_generation_tokens_total", **where) == len("Hello there!")
            assert value(found, "baton_http_responses_total", method="POST", status="404") == 5
            assert value(found, "process_resident_memory_bytes") > 1e6
            assert value(found, "process_cpu_seconds_total") > 0
        assert "nope-" not in plain.text
