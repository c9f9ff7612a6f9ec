"""What tokens cost, in US dollars."""

from collections.abc import Mapping
from typing import Annotated

from msgspec import Meta, Struct

from backends.types import Usage

Dollars = Annotated[float, Meta(ge=0)]

_MILLION = 1_000_000


class Price(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Dollars per million tokens. `cached_input_per_mtok` is for prompt tokens that a prefix cache answered; None means that
    they cost as much as the others."""

    input_per_mtok: Dollars = 0.0
    cached_input_per_mtok: Dollars | None = None
    output_per_mtok: Dollars = 0.0


Prices = Mapping[str, Price]
"""By public model name; a model that is not in it costs nothing."""

FREE = Price()


def cost(usage: Usage, price: Price) -> float:
    """Say what a request cost, in dollars."""
    cached = min(usage.cached_tokens, usage.prompt_tokens)
    cached_price = price.input_per_mtok if price.cached_input_per_mtok is None else price.cached_input_per_mtok
    total = (
        (usage.prompt_tokens - cached) * price.input_per_mtok
        + cached * cached_price
        + usage.completion_tokens * price.output_per_mtok
    )
    return total / _MILLION
