"""Which precisions to evaluate. Plain data: importing this loads no torch."""

from typing import Any, get_args

from msgspec import Struct

from backends.engine.config import DecodePrecision, HeadPrecision, KvPrecision, PrefillPrecision

_ALLOWED: dict[str, tuple[str, ...]] = {
    "prefill": get_args(PrefillPrecision),
    "decode": get_args(DecodePrecision),
    "head": get_args(HeadPrecision),
    "kv": get_args(KvPrecision),
}


class Choice(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Precisions, by their names in `EngineConfig`.

    With both `prefill` and `decode` the prefill weights read the first half of a window and the decode weights the second, as
    the engine reads prompts and answers. With only one of them its weights read both halves. With neither, all weights and
    activations are float32, so that `kv` is all that is rounded.
    """

    prefill: PrefillPrecision | None = None
    decode: DecodePrecision | None = None
    head: HeadPrecision = "auto"
    kv: KvPrecision = "auto"

    @property
    def text(self) -> str:
        """As it is written: `prefill=bf16,decode=auto`."""
        parts = [("prefill", self.prefill), ("decode", self.decode), ("head", self.head), ("kv", self.kv)]
        return ",".join(f"{name}={value}" for name, value in parts if value and (value != "auto" or name == "decode"))

    def settings(self) -> dict[str, Any]:
        """The fields of `EngineConfig` that give these weights and this cache."""
        weights: dict[str, Any] = {"prefill": self.prefill or "decode", "decode": self.decode or "auto"}
        if self.prefill is None and self.decode is None:
            weights = {"prefill": "decode", "decode": "fp32"}
        return weights | {"head": self.head, "kv": self.kv}


def parse_choice(text: str) -> Choice:
    """Read `prefill=bf16,decode=int4-g64,kv=int8`; each part may be left out, but not all of them.

    Raises:
        ValueError: a name or a precision is not known, or they do not go together. The message is for the user.
    """
    parts: dict[str, Any] = {}
    for part in text.split(","):
        name, sign, value = part.strip().partition("=")
        if not sign or name in parts or name not in _ALLOWED:
            raise ValueError(f"{part.strip()!r} is not one of {', '.join(f'{name}=' for name in _ALLOWED)} given once")
        if value not in _ALLOWED[name]:
            raise ValueError(f"{name} is {value!r}, it can be {', '.join(_ALLOWED[name])}")
        parts[name] = value
    choice = Choice(**parts)
    settings = choice.settings()
    exact = settings["decode"] == "fp32" and settings["prefill"] in ("decode", "fp32")
    if choice.kv == ("bf16" if exact else "fp32"):
        raise ValueError(
            f"{text}: beside {'only fp32' if exact else 'these'} weights kv can be {'fp32' if exact else 'bf16'} or int8"
        )
    return choice


DEFAULT_CHOICES = tuple(
    parse_choice(text)
    for text in (
        *("prefill=fp32", "prefill=bf16", "prefill=int8"),
        *("decode=auto", "decode=int8", "decode=int4-g32", "decode=int4-g64", "decode=int4-g128"),
        "kv=int8",
        *("prefill=bf16,decode=auto", "prefill=bf16,decode=auto,kv=int8"),
        *("prefill=int8,decode=auto", "prefill=bf16,decode=int4-g128"),
    )
)
"""Each set of weights by itself, the cache by itself, and what is served together."""
