"""Grammars for tool calls in the formats that `tool_parser` reads, as Lark text for llguidance.

A call always has the same white space (`{"name": "f", "arguments": {"a": 1}}`, as `json.dumps` writes it and as models were
trained on): small models cannot fill their budget with blanks, and what is certain can be forwarded without sampling. Every
tool's schema is a grammar of its own, so that its `$ref`s stay relative to itself.
"""

import json
from collections.abc import Callable, Sequence
from typing import Literal

from backends.text.tool_parser import HERMES_END, MARKERS, ToolFormat

MAX_CALLS = 32
"""Calls in one answer."""

_OPTIONS = '{"item_separator":", ","key_separator":": ","whitespace_flexible":false,"coerce_one_of":false,"lenient":false}'
_TEXT = "/(.|\\n)*/"


def json_rule(name: str, schema: str) -> str:
    """A rule for JSON that a schema, given as the text of an object, accepts."""
    inside = schema.strip()[1:]
    comma = "" if inside == "}" else ","
    return f'{name}: %json {{"x-guidance":{_OPTIONS}{comma}{inside}\n'


def answer_grammar(schema: str) -> str:
    """A grammar for an answer that is JSON."""
    return "start: answer\n" + json_rule("answer", schema)


def tools_grammar(
    tools: Sequence[tuple[str, str]],
    tool_format: ToolFormat,
    *,
    required: bool,
    parallel: bool,
    answer: str | None,
    special: Callable[[str], int | None],
) -> str:
    """A grammar for answers that may, or with `required` must, call tools.

    Args:
        tools: name and schema text of each.
        parallel: whether several calls are allowed.
        answer: schema text for an answer without calls, or None for free text.
        special: the id of the control token with a given text, if the vocabulary has one; text never matches such tokens.
    """
    key = "parameters" if tool_format == "json" else "arguments"
    rules = [_call_rule(i, name, schema, key) for i, (name, schema) in enumerate(tools)]
    rules.append("call: " + " | ".join(f"call_{i}" for i in range(len(tools))) + "\n")
    more = f' (", " call){{0,{MAX_CALLS - 1}}}' if parallel else ""
    rules.append(f'list: "[" call{more} "]"\n')
    start = {"hermes": _hermes, "mistral": _mistral, "json": _bare}[tool_format](
        required or answer is not None, parallel, special
    )
    if answer is not None:
        rules.append(json_rule("answer", answer))
        if not required:
            start = start.replace("start: ", "start: answer | ", 1)
    return start + "".join(rules)


_Special = Callable[[str], int | None]
_Kind = Literal["hermes", "mistral"]


def _hermes(required: bool, parallel: bool, special: _Special) -> str:
    end = _symbol(HERMES_END, special)
    body = f'body: "\\n" call "\\n" {end}\n'
    if required:
        more = f' ("\\n" one){{0,{MAX_CALLS - 1}}}' if parallel else ""
        return f"start: one{more}\none: {_symbol(MARKERS['hermes'], special)} body\n{body}"
    return _free("hermes", special, repeated=parallel) + body


def _mistral(required: bool, parallel: bool, special: _Special) -> str:
    if required:
        return f"start: {_symbol(MARKERS['mistral'], special)} list\n"
    return _free("mistral", special, repeated=False) + "body: list\n"


def _bare(required: bool, parallel: bool, special: _Special) -> str:
    """A text that begins like a call must be one, as nothing else tells them apart."""
    some = "call | list" if parallel else "call"
    return f"start: {some}\n" if required else f"start: {some} | TEXT\nTEXT: /([^{{\\[ \\t\\r\\n](.|\\n)*)?/\n"


def _free(kind: _Kind, special: _Special, *, repeated: bool) -> str:
    """Free text, in which the marker begins a call. A lazy lexeme ends at the first marker, so none slips by as text."""
    marker = MARKERS[kind]
    if special(marker) is None:
        begin = f"begin[lazy]: /(.|\\n)*{_escaped(marker)}/\n"
    else:
        begin = f"begin: TEXT {_symbol(marker, special)}\n"
    calls = f"(begin body){{0,{MAX_CALLS}}} TEXT" if repeated else "TEXT | begin body"
    return f"start: {calls}\nTEXT: {_TEXT}\n{begin}"


def _escaped(marker: str) -> str:
    return marker.replace("[", "\\[").replace("]", "\\]")


def _symbol(text: str, special: _Special) -> str:
    token = special(text)
    return json.dumps(text) if token is None else f"<[{token}]>"


def _call_rule(i: int, name: str, schema: str, key: str) -> str:
    """One lexeme for each token of JSON, as in `%json`: where both are possible the longer lexeme would win too early."""
    words = ["{", '"name"', ": ", json.dumps(name, ensure_ascii=False), ", ", f'"{key}"', ": "]
    head = " ".join(json.dumps(word, ensure_ascii=False) for word in words)
    return f'call_{i}: {head} args_{i} "}}"\n' + json_rule(f"args_{i}", schema)
