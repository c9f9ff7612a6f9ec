"""What is measured of the torch engine and of its peers, and what is wanted. Plain data, over what the generators printed."""

from msgspec import Struct

from benchmarks.goals import Column, Goal, Round

BATON, NO_DRAFTS, LLAMA_SERVER, VLLM = "Baton", "Baton, no drafts", "llama-server", "vLLM"
SERVERS = (BATON, NO_DRAFTS, LLAMA_SERVER, VLLM)
PEERS = (LLAMA_SERVER, VLLM)

SLOTS = 16
CONTEXT = 2048
"""Tokens, for one request."""
DRAFT_TOKENS = 7

_COPY = (
    "Correct the spelling of the following text and change nothing else:\n\n"
    "The old bridge over the {words} was closed on Monday because its wooden beams had become unsafe. "
    "The town council has asked three companies for offers, and repairs are to begin in spring. "
    "Until then, drivers must take the road through the forest, which is about six miles longer. "
    "Cyclists and walkers may use the ferry at no charge."
)
"""There is nothing to correct, and SmolLM2 answers with the text itself, which is a little longer than what is asked for."""


class Load(Struct, frozen=True, kw_only=True):
    """One closed loop of streaming users, whose answers are all of `max_tokens`, whatever the model would like.

    `prompt` is that of `benchmarks.load`. Loads of the same `prompts` send the same ones; by default a load has its own.
    """

    name: str
    users: int
    requests: int
    quick_requests: int
    prompt_words: int = 100
    prompt: str = "{words}"
    prompts: str = ""
    max_tokens: int = 64
    servers: tuple[str, ...] = (BATON, *PEERS)


LONG = Load(name="900 words", users=1, requests=8, quick_requests=4, prompt_words=900, max_tokens=2)
AGAIN = Load(
    name="the same 900 words",
    users=1,
    requests=8,
    quick_requests=4,
    prompt_words=900,
    prompts=LONG.name,
    max_tokens=2,
    servers=(BATON,),
)
ONE = Load(name="one user", users=1, requests=8, quick_requests=4, servers=SERVERS)
FOUR = Load(name="4 users", users=4, requests=16, quick_requests=8)
EIGHT = Load(name="8 users", users=8, requests=24, quick_requests=8)
SIXTEEN = Load(name="16 users", users=16, requests=48, quick_requests=16)
COPY = Load(name="copies", users=1, requests=12, quick_requests=6, prompt_words=2, prompt=_COPY, servers=(BATON, NO_DRAFTS))
LOADS = (LONG, AGAIN, ONE, FOUR, EIGHT, SIXTEEN, COPY)
WARM_UPS = (
    Load(name="warm-up with a long prompt", users=1, requests=1, quick_requests=1, prompt_words=900, max_tokens=2),
    Load(name="warm-up", users=16, requests=16, quick_requests=16, max_tokens=8),
)
"""Sent to every server, so that none compiles or allocates for the first time while it is measured."""

INTERRUPTED = "streams while long prompts come"
STREAMS, STREAM_TOKENS, LONG_WORDS = 4, 300, 900

OWN = "own"
"""What a server is, not what it does under load: `ready_s`, `rss_mb`, and of Baton `weights_mb`."""
WASTE_METRIC = "baton_engine_kv_waste_ratio"
WASTE = "kv_waste_percent"
"""In the figures of `SIXTEEN`: the largest and the mean of what the metric was meanwhile."""


def first_token(measured: Round, server: str, load: Load) -> float:
    """Look up the median time to the first token, in milliseconds."""
    return float(measured[server][load.name]["ttft_ms"]["p50"])


def rate(measured: Round, server: str, load: Load) -> float:
    """Look up the output tokens per second."""
    return float(measured[server][load.name]["tok_s"])


def gap(measured: Round, server: str) -> float:
    """Look up the median time between the tokens of one user, in milliseconds."""
    return float(measured[server][ONE.name]["itl_ms"]["p50"])


def interrupted_gap(measured: Round, server: str) -> float:
    """Look up the 99th percentile of the time between tokens while long prompts come, in milliseconds."""
    return float(measured[server][INTERRUPTED]["itl_ms"]["p99"])


def answered(measured: Round, server: str) -> float:
    """Compute how many of the long prompts were answered per second while the streams ran."""
    figures = measured[server][INTERRUPTED]
    return float(figures["prompts"] / figures["wall_s"])


def waste(measured: Round, server: str, which: str) -> float:
    """Look up the `max` or `mean` part of the held KV cache that held nothing, in percent."""
    return float(measured[server][SIXTEEN.name][WASTE][which])


COLUMNS = (
    Column(title="time to first token p50, 900 words, c=1", unit="ms", pick=lambda r, s: first_token(r, s, LONG)),
    Column(title="the same prompts again", unit="ms", pick=lambda r, s: first_token(r, s, AGAIN)),
    Column(title="time to first token p50, 100 words, c=1", unit="ms", pick=lambda r, s: first_token(r, s, ONE)),
    Column(title="inter-token latency p50, c=1", unit="ms", pick=gap),
    Column(title="output, c=1", unit="tok/s", pick=lambda r, s: rate(r, s, ONE)),
    Column(title="output, c=4", unit="tok/s", pick=lambda r, s: rate(r, s, FOUR)),
    Column(title="output, c=8", unit="tok/s", pick=lambda r, s: rate(r, s, EIGHT)),
    Column(title="output, c=16", unit="tok/s", pick=lambda r, s: rate(r, s, SIXTEEN)),
    Column(
        title="inter-token latency p50, 4 streams and long prompts",
        unit="ms",
        pick=lambda r, s: float(r[s][INTERRUPTED]["itl_ms"]["p50"]),
    ),
    Column(title="inter-token latency p99, 4 streams and long prompts", unit="ms", pick=interrupted_gap),
    Column(title="long prompts answered meanwhile", unit="per s", pick=answered),
    Column(title="output of copies, c=1", unit="tok/s", pick=lambda r, s: rate(r, s, COPY)),
    Column(title="resident memory, all processes, idle", unit="MB", pick=lambda r, s: float(r[s][OWN]["rss_mb"])),
    Column(title="ready after start", unit="s", pick=lambda r, s: float(r[s][OWN]["ready_s"])),
    Column(title="weights for prefill", unit="MB", pick=lambda r, s: float(r[s][OWN]["weights_mb"]["prefill"])),
    Column(title="weights for decode", unit="MB", pick=lambda r, s: float(r[s][OWN]["weights_mb"]["decode"])),
    Column(title="embedding and head", unit="MB", pick=lambda r, s: float(r[s][OWN]["weights_mb"]["words"])),
)

GOALS = (
    Goal(title="first token, 900 words, by vLLM's", unit="x", pick=lambda r: _first_token_by(r, VLLM), at_most=0.8),
    Goal(
        title="first token, 900 words, by llama-server's",
        unit="x",
        pick=lambda r: _first_token_by(r, LLAMA_SERVER),
        at_most=0.3,
    ),
    # Without drafts: a step that accepts some brings several tokens at once, with no time between them.
    Goal(title="inter-token p50 without drafts, c=1, by vLLM's", unit="x", pick=lambda r: _gap_by(r, VLLM), at_most=0.45),
    Goal(
        title="inter-token p50 without drafts, c=1, by llama-server's",
        unit="x",
        pick=lambda r: _gap_by(r, LLAMA_SERVER),
        at_most=1.2,
    ),
    Goal(
        title="output, c=16, by the better peer's",
        unit="x",
        pick=lambda r: rate(r, BATON, SIXTEEN) / max(rate(r, peer, SIXTEEN) for peer in PEERS),
        at_least=1.2,
    ),
    Goal(
        title="inter-token p99 while long prompts come, by vLLM's",
        unit="x",
        pick=lambda r: interrupted_gap(r, BATON) / interrupted_gap(r, VLLM),
        at_most=0.5,
    ),
    Goal(
        title="output of copies, by that without drafts",
        unit="x",
        pick=lambda r: rate(r, BATON, COPY) / rate(r, NO_DRAFTS, COPY),
        at_least=1.5,
    ),
    Goal(
        title="first token of a repeated prompt, by the first time's",
        unit="x",
        pick=lambda r: first_token(r, BATON, AGAIN) / first_token(r, BATON, LONG),
        at_most=0.1,
    ),
    Goal(title="unused part of the held KV cache, c=16, mean", unit="%", pick=lambda r: waste(r, BATON, "mean"), at_most=4.0),
    Goal(title="unused part of the held KV cache, c=16, largest", unit="%", pick=lambda r: waste(r, BATON, "max"), at_most=4.0),
)


def _first_token_by(measured: Round, peer: str) -> float:
    return first_token(measured, BATON, LONG) / first_token(measured, peer, LONG)


def _gap_by(measured: Round, peer: str) -> float:
    return gap(measured, NO_DRAFTS) / gap(measured, peer)
