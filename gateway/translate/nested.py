"""Bounds for JSON that is passed on as it is: schemas, tool parameters, template variables.

Walks without recursion. Integers are kept to 64 bits, because they travel to engines as MessagePack, which has no larger ones.
"""

from typing import Any

from gateway.errors import InvalidRequest

MAX_DEPTH = 64
MAX_NODES = 20_000


def check_nested(value: dict[str, Any] | None, param: str) -> None:
    """Refuse JSON that is nested deeper than 64 levels, has more than 20,000 values, or integers of more than 64 bits.

    Raises:
        InvalidRequest: with the limit and what broke it.
    """
    level: list[Any] = [value]
    depth = nodes = 0
    while level:
        depth += 1
        nodes += len(level)
        if depth > MAX_DEPTH + 1:
            raise InvalidRequest(f"'{param}' is nested deeper than {MAX_DEPTH} levels.", param=param, code="invalid_value")
        if nodes > MAX_NODES:
            raise InvalidRequest(f"'{param}' has more than {MAX_NODES} values.", param=param, code="invalid_value")
        below: list[Any] = []
        for item in level:
            if isinstance(item, dict):
                below.extend(item.values())
            elif isinstance(item, list):
                below.extend(item)
            elif type(item) is int and not -(2**63) <= item < 2**63:
                raise InvalidRequest(f"'{param}' holds an integer of more than 64 bits.", param=param, code="invalid_value")
        level = below
