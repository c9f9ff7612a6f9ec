"""Damages request bodies: values replaced, deleted, added and repeated anywhere, and bytes cut."""

import copy
import json
from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

_WORDS = ["", "auto", "user", "plain", "\x00", "💥" * 300]


def paths(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a JSON value."""
    found = [at] if at else []
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        found += paths(item, (*at, key))
    return found


@st.composite
def damaged(draw: st.DrawFn, seeds: Sequence[tuple[str, dict[str, Any]]], words: Sequence[str]) -> tuple[str, bytes]:
    """One of `seeds` (path and good body), damaged up to three times. `words` are texts that mean something there."""
    path, seed = draw(st.sampled_from(seeds))
    body = copy.deepcopy(seed)
    values = _values([*_WORDS, *words])
    for _ in range(draw(st.integers(1, 3))):
        if body:
            _damage(draw, body, values)
    data = json.dumps(body, ensure_ascii=draw(st.booleans())).encode("utf-8", "surrogatepass")
    if draw(st.integers(0, 9)) == 0:
        cut = draw(st.integers(0, len(data)))
        data = data[:cut] + draw(st.binary(max_size=3)) + data[cut + draw(st.integers(0, 3)) :]
    return path, data


def _values(words: Sequence[str]) -> st.SearchStrategy[Any]:
    scalars = st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(2**70), 2**70),
        st.floats(allow_nan=True, allow_infinity=True),
        st.text(max_size=20),
        st.sampled_from(words),
    )
    names = st.text(max_size=8)
    return st.recursive(
        scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(names, inner, max_size=4), max_leaves=8
    )


def _damage(draw: st.DrawFn, body: Any, values: st.SearchStrategy[Any]) -> None:
    *parents, last = draw(st.sampled_from(paths(body)))
    target = body
    for key in parents:
        target = target[key]
    action = draw(st.sampled_from(["replace", "delete", "add", "repeat"]))
    if action == "replace":
        target[last] = draw(values)
    elif action == "delete":
        del target[last]
    elif isinstance(target, dict):
        target[draw(st.text(max_size=8)) if action == "add" else last] = draw(values)
    else:
        target.extend([copy.deepcopy(target[last])] * draw(st.integers(1, 150)))
