"""The filters, operators and methods that a chat template may use, each checked before it makes something large.

Filters with no use in chat templates do not exist here (`center`, `wordwrap`, `batch`, `slice`, `sum`, `urlize`, `xmlattr` ...:
most of them turn one number into gigabytes). Every filter takes the context, which also keeps Jinja from computing it at
compile time. `tojson` and `strftime_now` are those of transformers (`utils/chat_template_utils.py`).
"""

import json
import math
import re
from collections.abc import Callable, Iterable
from typing import Any

from jinja2 import pass_context
from jinja2.exceptions import SecurityError
from jinja2.filters import FILTERS
from jinja2.runtime import Context

from backends.text.template_budget import TemplateLimit, check_int, check_length, current

_LIST_FILTERS = (
    *("count", "d", "default", "dictsort", "first", "groupby", "items", "last", "length", "list", "map", "max", "min"),
    *("reject", "rejectattr", "reverse", "select", "selectattr", "sort", "unique"),
)
_PRINTING_FILTERS = ("abs", "capitalize", "e", "escape", "float", "int", "lower", "string", "title", "trim", "upper")
_MAKES_LISTS = frozenset({"dictsort", "groupby", "list", "sort"})
_BLOCKED_METHODS = frozenset({"translate", "maketrans", "encode", "to_bytes", "from_bytes", "fromhex"})
_PADDING_METHODS = frozenset({"center", "ljust", "rjust", "zfill", "expandtabs"})
_MAX_INDENT = 64
_MAX_FIELD = 10_000
WIDE_FIELD = re.compile(r"\d{5}|%[^a-zA-Z%]*\*|\{[^{}]*:[^{}]*\{")
"""In a format: a width of five digits, or one that is itself a value."""

Filter = Callable[..., Any]


def filters() -> dict[str, Filter]:
    """All filters by name."""
    kept = {name: _checked(FILTERS[name], name in _MAKES_LISTS, False) for name in _LIST_FILTERS}
    kept |= {name: _checked(FILTERS[name], False, True) for name in _PRINTING_FILTERS}
    own: dict[str, Filter] = {"indent": _indent, "replace": _replace, "round": _round, "safe": str, "tojson": _tojson}
    kept |= {name: _checked(function, False, True) for name, function in own.items()}
    kept |= {name: _checked(function, False, False) for name, function in {"join": _join, "_concat": _concat}.items()}
    return kept


def _checked(function: Filter, measures_result: bool, prints_input: bool) -> Filter:
    """Wrap a filter: it pays a step, for the text of its input if it prints that, and for text it returns."""
    # What Jinja would pass first: its enumeration is private, its names are not.
    passed = getattr(getattr(function, "jinja_pass_arg", None), "name", "")

    @pass_context
    def checked(context: Context, value: Any, *args: Any, **kwargs: Any) -> Any:
        budget = current()
        budget.step()
        if prints_input:
            budget.printed(value)
        first = {"context": (context,), "eval_context": (context.eval_ctx,), "environment": (context.environment,)}
        result = function(*first.get(passed, ()), value, *args, **kwargs)
        if isinstance(result, str):
            budget.chars(len(result))
        elif measures_result:
            budget.measured(result)
        return result

    return checked


def check_operator(operator: str, left: Any, right: Any) -> None:
    """Raise `TemplateLimit` when `left operator right` would be too large."""
    budget = current()
    if operator == "+":
        if isinstance(left, str) and isinstance(right, str):
            budget.chars(len(left) + len(right))
        elif isinstance(left, (list, tuple)) and isinstance(right, (list, tuple)):
            check_length(len(left) + len(right))
    elif operator == "*":
        _check_multiply(left, right)
    elif operator == "**":
        if isinstance(left, int) and isinstance(right, int):
            check_int(left.bit_length() * abs(right))
    elif isinstance(left, str):
        check_format(left, right)


def _check_multiply(left: Any, right: Any) -> None:
    if isinstance(right, (str, list, tuple)):
        left, right = right, left
    if not isinstance(right, int):
        return
    if isinstance(left, str):
        current().chars(len(left) * max(right, 0))
    elif isinstance(left, (list, tuple)):
        check_length(len(left) * max(right, 0))
    elif isinstance(left, int):
        check_int(left.bit_length() + right.bit_length())


def check_format(template: str, values: Any) -> None:
    """Raise `TemplateLimit` when formatting `values` into `template` could make too long a text."""
    if WIDE_FIELD.search(template):
        raise TemplateLimit("it formats with a width of five or more digits, or one that is computed")
    budget, fields = current(), template.count("%") + template.count("{")
    budget.chars(len(template) + fields * (_MAX_FIELD + budget.measured(values)))


def check_method(owner: str | int, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """Check a method call on a built-in value; return the arguments to call it with.

    Raises:
        TemplateLimit: the result would be too large.
        SecurityError: the method is not available.
    """
    if name in _BLOCKED_METHODS:
        raise SecurityError(f"the method {name!r} is not available")
    if isinstance(owner, str):
        budget = current()
        if name in _PADDING_METHODS:
            widths = [value for value in (*args, *kwargs.values()) if isinstance(value, int)]
            budget.chars(len(owner) + (owner.count("\t") + 1) * max(widths, default=8))
        elif name == "replace" and len(args) >= 2:
            budget.chars(_replaced_size(owner, args[0], args[1]))
        elif name == "join" and args:
            return (_bounded(args[0], owner), *args[1:])
        else:
            budget.chars(len(owner))
    return args


def _replaced_size(text: str, old: Any, new: Any) -> int:
    return len(text) + text.count(old) * len(new) if isinstance(old, str) and isinstance(new, str) else 0


def _bounded(values: Iterable[Any], separator: str) -> list[Any]:
    """The values as a list, each of them, and their joined length, paid for."""
    budget, items = current(), list[Any]()
    size = 0
    for value in values:
        budget.step()
        size += budget.printed(value) + len(separator)
        items.append(value)
        check_length(len(items))
    budget.chars(size)
    return items


def _concat(values: list[Any]) -> str:
    return "".join(map(str, _bounded(values, "")))


def _join(values: Iterable[Any], d: str = "", attribute: str | None = None) -> str:
    if attribute is not None:
        values = [value.get(attribute, "") if isinstance(value, dict) else "" for value in values]
    return str(d).join(map(str, _bounded(values, str(d))))


def _indent(value: Any, width: int | str = 4, first: bool = False, blank: bool = False) -> str:
    _check_indent(width)
    text, pad = str(value), width if isinstance(width, str) else " " * width
    lines = text.splitlines() or [""]
    current().chars(len(text) + len(lines) * len(pad))
    head = pad + lines[0] if first else lines[0]
    return "\n".join([head, *(pad + line if line or blank else line for line in lines[1:])])


def _check_indent(indent: int | str | None) -> None:
    width = len(indent) if isinstance(indent, str) else indent
    if width is not None and width > _MAX_INDENT:
        raise TemplateLimit(f"it indents by more than {_MAX_INDENT} characters")


def _replace(value: Any, old: str, new: str, count: int | None = None) -> str:
    text = str(value)
    current().chars(_replaced_size(text, old, new))
    return text.replace(old, new, -1 if count is None else count)


def _round(value: Any, precision: int = 0, method: str = "common") -> float:
    steps: dict[str, Callable[[float], int]] = {"common": round, "ceil": math.ceil, "floor": math.floor}
    scale = 10 ** max(0, min(precision, 15))
    return float(steps[method](float(value) * scale) / scale)


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON as `transformers` writes it: no HTML escapes, other scripts as they are."""
    _check_indent(indent)
    _check_indent("".join(separators or ()))
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
