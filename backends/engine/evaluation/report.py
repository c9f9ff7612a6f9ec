"""What an evaluation found. Plain data: importing this loads no torch."""

from msgspec import Struct

from backends.engine.evaluation.choice import Choice


class Interval(Struct, frozen=True):
    """A mean over tokens, and between what 95 % of its bootstrap repetitions lie."""

    mean: float
    low: float
    high: float


class Quality(Struct, frozen=True, kw_only=True):
    """How far one choice of precisions is from the same model in float32.

    `perplexity_ratio` is the perplexity by that of float32. `kl` and its 99th percentile `kl_p99` are in nats per token,
    `same_top` and `flips` parts of 1. Formulas: `backends.engine.evaluation.scores`.
    """

    perplexity: float
    perplexity_ratio: Interval
    kl: Interval
    kl_p99: float
    same_top: float
    flips: Interval


class Measured(Struct, frozen=True, kw_only=True):
    """One choice on one text.

    `used` names what each of `prefill`, `decode`, `head` and `kv` came to, so that nothing is `auto`; None for the phase whose
    tokens the other's weights read.
    """

    choice: Choice
    used: dict[str, str | None]
    quality: Quality


class TextReport(Struct, frozen=True, kw_only=True):
    """All choices on one text: `tokens` were scored, in so many `windows`; `sha256` is that of the windows' tokens."""

    name: str
    windows: int
    tokens: int
    sha256: str
    perplexity: float
    measured: list[Measured]


class Report(Struct, frozen=True, kw_only=True):
    """An evaluation of one model."""

    model: str
    architecture: str
    quantization: str
    window: int
    texts: list[TextReport]
