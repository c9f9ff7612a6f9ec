"""The section `[telemetry]`."""

import msgspec
import pytest

from gateway.telemetry.config import TelemetryConfig


@pytest.mark.parametrize("endpoint", ["collector:4318", "ftp://collector", "http://", "https://user:word@collector"])
def test_endpoint_that_cannot_be_used_is_refused(endpoint):
    with pytest.raises(msgspec.ValidationError, match="otlp_endpoint"):
        msgspec.convert({"otlp_endpoint": endpoint}, TelemetryConfig)


@pytest.mark.parametrize("ratio", [-0.1, 1.1])
def test_ratio_is_a_share(ratio):
    with pytest.raises(msgspec.ValidationError, match="sample_ratio"):
        msgspec.convert({"sample_ratio": ratio}, TelemetryConfig)


def test_there_is_no_way_to_record_prompts():
    with pytest.raises(msgspec.ValidationError, match="log_prompts"):
        msgspec.convert({"log_prompts": True}, TelemetryConfig)


@pytest.mark.parametrize("endpoint", ["http://c:4318", "http://c:4318/", "http://c:4318/v1/traces"])
def test_traces_go_below_the_endpoint(endpoint):
    assert TelemetryConfig(otlp_endpoint=endpoint).traces_url == "http://c:4318/v1/traces"


def test_traces_go_below_the_path_of_the_endpoint():
    assert TelemetryConfig(otlp_endpoint="https://c/otlp").traces_url == "https://c/otlp/v1/traces"
