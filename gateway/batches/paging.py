"""Which part of a list a client asks for: `limit`, `after` and `order`, as the OpenAI API names them."""

from collections.abc import Mapping
from typing import Generic, NamedTuple, TypeVar

from gateway.errors import InvalidRequest

T = TypeVar("T")


class Page(NamedTuple):
    """At most `limit` entries behind the one with the id `after`, newest first unless `ascending`."""

    limit: int
    after: str | None
    ascending: bool


class Listed(NamedTuple, Generic[T]):
    """One page, and whether there is more."""

    entries: list[T]
    has_more: bool


def read_page(query: Mapping[str, str], *, limit: int, max_limit: int) -> Page:
    """Read the parameters of a list.

    Args:
        limit: where the client names none.

    Raises:
        InvalidRequest: a parameter is out of its range.
    """
    order, text = query.get("order", "desc"), query.get("limit")
    if order not in ("asc", "desc"):
        raise InvalidRequest("'order' must be 'asc' or 'desc'.", param="order", code="invalid_value")
    if text is not None:
        limit = int(text) if text.isascii() and text.isdecimal() and len(text) <= 6 else 0
        if not 1 <= limit <= max_limit:
            raise InvalidRequest(f"'limit' must be 1 to {max_limit}.", param="limit", code="invalid_value")
    return Page(limit, query.get("after"), order == "asc")
