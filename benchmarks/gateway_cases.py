"""What is measured of gateways, and what is wanted. Plain data, over what `benchmarks.load` printed."""

from msgspec import Struct

from benchmarks.cases import OwnFigure
from benchmarks.goals import Column, Goal, Round

DIRECT, BATON, LITELLM, VLLM_ROUTER = "direct", "Baton", "LiteLLM", "vllm-router"
SERVERS = (DIRECT, BATON, LITELLM, VLLM_ROUTER)

CHUNKS = 100
"""Pieces of content in a stream."""

_LEAST_ADDED_MS = 0.001  # to divide by, where noise leaves nothing or less


class Load(Struct, frozen=True, kw_only=True):
    """One closed loop of users. A server that needs a hundred times as long per request is sent fewer of them."""

    name: str
    users: int
    stream: bool
    requests: int
    slow_requests: int

    def count(self, server: str, quick: bool) -> int:
        """Say how many requests a server is sent; a quick run takes a quarter."""
        requests = self.slow_requests if server == LITELLM else self.requests
        return max(self.users, requests // 4) if quick else requests


ONE = Load(name="one user", users=1, stream=False, requests=2000, slow_requests=160)
MANY = Load(name="32 users", users=32, stream=False, requests=8000, slow_requests=320)
ONE_STREAM = Load(name="one stream", users=1, stream=True, requests=400, slow_requests=32)
MANY_STREAMS = Load(name="16 streams", users=16, stream=True, requests=1600, slow_requests=80)
LOADS = (ONE, MANY, ONE_STREAM, MANY_STREAMS)


def p50(measured: Round, server: str, load: Load) -> float:
    """Look up the median duration of whole requests, in milliseconds."""
    return float(measured[server][load.name]["e2e_ms"]["p50"])


def rate(measured: Round, server: str, load: Load) -> float:
    """Look up the requests per second."""
    return float(measured[server][load.name]["rps"])


def added(measured: Round, server: str) -> float:
    """Subtract the direct time from what one user waits, in milliseconds."""
    return p50(measured, server, ONE) - p50(measured, DIRECT, ONE)


COLUMNS = (
    Column(title="c=1, p50", unit="ms", pick=lambda r, s: p50(r, s, ONE)),
    Column(title="c=1, added p50", unit="ms", pick=added),
    Column(title="c=32", unit="req/s", pick=lambda r, s: rate(r, s, MANY)),
    Column(title="c=32, p99", unit="ms", pick=lambda r, s: float(r[s][MANY.name]["e2e_ms"]["p99"])),
    Column(title="c=32, CPU per request", unit="us", pick=lambda r, s: float(r[s][MANY.name]["server_cpu_us"])),
    Column(title="stream, c=1, p50", unit="ms", pick=lambda r, s: p50(r, s, ONE_STREAM)),
    Column(title="streams, c=16", unit="streams/s", pick=lambda r, s: rate(r, s, MANY_STREAMS)),
    Column(title="streams, c=16, CPU per stream", unit="us", pick=lambda r, s: float(r[s][MANY_STREAMS.name]["server_cpu_us"])),
)


GOALS = (
    Goal(title="added p50, c=1", unit="ms", pick=lambda r: added(r, BATON), at_most=0.5),
    Goal(
        title="LiteLLM adds that many times as much",
        unit="x",
        pick=lambda r: added(r, LITELLM) / max(added(r, BATON), _LEAST_ADDED_MS),
        at_least=18.0,
    ),
    Goal(title="requests, c=32", unit="req/s", pick=lambda r: rate(r, BATON, MANY), at_least=3000.0),
    Goal(title="requests, c=32, by LiteLLM's", unit="x", pick=lambda r: _by(r, LITELLM, MANY), at_least=25.0),
    Goal(title="requests, c=32, by vllm-router's", unit="x", pick=lambda r: _by(r, VLLM_ROUTER, MANY), at_least=0.6),
    Goal(
        title="time of a stream, c=1, by the direct one",
        unit="x",
        pick=lambda r: p50(r, BATON, ONE_STREAM) / p50(r, DIRECT, ONE_STREAM),
        at_most=1.5,
    ),
    Goal(title="streams, c=16", unit="streams/s", pick=lambda r: rate(r, BATON, MANY_STREAMS), at_least=600.0),
    Goal(title="streams, c=16, by LiteLLM's", unit="x", pick=lambda r: _by(r, LITELLM, MANY_STREAMS), at_least=45.0),
)


def _by(measured: Round, peer: str, load: Load) -> float:
    return rate(measured, BATON, load) / rate(measured, peer, load)


MEMORY_GOALS = (
    OwnFigure(title="memory per open stream", unit="KB", key="rss_per_stream_kb", at_most=50.0),
    OwnFigure(title="memory per aborted stream, once warm", unit="KB", key="rss_per_abort_kb", at_most=0.5),
    OwnFigure(title="requests in flight after the aborts", unit="requests", key="in_flight_after", at_most=0.0),
    OwnFigure(title="/health/live p99, open streams", unit="ms", key="health_p99_open_ms", at_most=50.0),
    OwnFigure(title="/health/live p99, aborts", unit="ms", key="health_p99_aborts_ms", at_most=50.0),
)
"""Figures of `benchmarks.gateway_memory`."""
