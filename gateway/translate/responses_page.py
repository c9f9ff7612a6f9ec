"""One page out of a list of items, as the API cuts them: newest first unless asked otherwise, and on from the id seen last."""

from collections.abc import Mapping, Sequence

import msgspec
from msgspec import Struct

from gateway.errors import InvalidRequest
from gateway.schema.responses_answer import ItemList

MAX_LIMIT = 100
DEFAULT_LIMIT = 20

_encode = msgspec.json.Encoder().encode


class _Identified(Struct):
    id: str


_id_of = msgspec.json.Decoder(_Identified).decode


def page(items: Sequence[bytes], query: Mapping[str, str]) -> bytes:
    """Cut a page and encode it.

    Args:
        items: in the order of the conversation, each a JSON object with an `id`.
        query: `order` (`asc` or `desc`), `after` (an id) and `limit` (1 to 100).

    Raises:
        InvalidRequest: a parameter is out of its range, or no item has the id.
    """
    order, after = query.get("order", "desc"), query.get("after")
    if order not in ("asc", "desc"):
        raise InvalidRequest("'order' must be 'asc' or 'desc'.", param="order", code="invalid_value")
    limit = _limit(query.get("limit"))
    ordered = items if order == "asc" else items[::-1]
    ids = [_id_of(item).id for item in ordered]
    start = 0
    if after is not None:
        if after not in ids:
            raise InvalidRequest(f"No item has the id '{after[:80]}'.", param="after", code="invalid_value")
        start = ids.index(after) + 1
    shown = ids[start : start + limit]
    return _encode(
        ItemList(
            data=[msgspec.Raw(item) for item in ordered[start : start + limit]],
            first_id=shown[0] if shown else None,
            last_id=shown[-1] if shown else None,
            has_more=start + limit < len(ids),
        )
    )


def _limit(text: str | None) -> int:
    if text is None:
        return DEFAULT_LIMIT
    limit = int(text) if text.isascii() and text.isdigit() and len(text) <= 4 else 0
    if not 1 <= limit <= MAX_LIMIT:
        raise InvalidRequest(f"'limit' must be 1 to {MAX_LIMIT}.", param="limit", code="invalid_value")
    return limit
