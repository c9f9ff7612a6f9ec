"""Tool calls out of text: what is a call, what is content, and that splits make no difference."""

import json
import re
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.text.tool_parser import ToolFormat, ToolParser, detect_format
from backends.types import ToolCallDelta

CALL = '<tool_call>\n{"name": "f", "arguments": {"a": [1, "}\\""]}}\n</tool_call>'
ARGS = '{"a": [1, "}\\""]}'


def _merge(pieces: list[tuple[str, tuple[ToolCallDelta, ...]]]) -> tuple[str, list[tuple[str, str]]]:
    content, calls = "".join(text for text, _ in pieces), list[list[str]]()
    for _, deltas in pieces:
        for delta in deltas:
            if delta.name is not None:
                assert delta.index == len(calls)
                assert re.fullmatch(r"call_[A-Za-z0-9]{24}", delta.id or "")
                calls.append([delta.name, delta.arguments])
            else:
                assert delta.id is None
                assert delta.index == len(calls) - 1
                calls[-1][1] += delta.arguments
    return content, [(name, arguments) for name, arguments in calls]


def parse(text: str, kind: ToolFormat, size: int = 0, names: tuple[str, ...] = ()) -> tuple[str, list[tuple[str, str]]]:
    parser, size = ToolParser(kind, names), size or len(text) or 1
    return _merge([*[parser.push(text[i : i + size]) for i in range(0, len(text), size)], parser.flush()])


CASES: list[tuple[ToolFormat, str, str, list[tuple[str, str]]]] = [
    ("hermes", CALL, "", [("f", ARGS)]),
    ("hermes", f"Let me see.\n{CALL}", "Let me see.\n", [("f", ARGS)]),
    ("hermes", f" \n{CALL}\n\n{CALL}\n", "", [("f", ARGS)] * 2),
    ("hermes", f"{CALL} and then", " and then", [("f", ARGS)]),
    ("hermes", '<tool_call>{"name":"f"}</tool_call>', "", [("f", "{}")]),
    ("hermes", '<tool_call>{"name":"f","arguments":null}</tool_call>', "", [("f", "{}")]),
    ("hermes", '<tool_call>{"name":"f","arguments":"{\\"a\\": 1}"}</tool_call>', "", [("f", '{"a": 1}')]),
    ("hermes", '<tool_call>{"arguments":{"b":{}},"name":"f"}</tool_call>', "", [("f", '{"b":{}}')]),
    ("hermes", '<tool_call>{"type":"function","name":"f","parameters":{}}', "", [("f", "{}")]),
    ("hermes", f'<tool_call>{{"name":"g","arguments":{{}}}}{CALL}', "", [("g", "{}"), ("f", ARGS)]),
    ("hermes", "<tool_call>not json</tool_call>", "<tool_call>not json</tool_call>", []),
    ("hermes", '<tool_call>{"name": 5}</tool_call>x', '<tool_call>{"name": 5}</tool_call>x', []),
    ("hermes", f'<tool_call>{{"name" {CALL}', '<tool_call>{"name" ', [("f", ARGS)]),
    ("hermes", '<tool_call>{"name":"f","arguments":{"a":1', "", [("f", '{"a":1')]),
    ("hermes", '<tool_call>{"name":"f", "argum', '<tool_call>{"name":"f", "argum', []),
    ("hermes", "2 < 3 <tool_cal", "2 < 3 <tool_cal", []),
    ("hermes", " \n", " \n", []),
    ("hermes", '{"name":"f","arguments":{}}', '{"name":"f","arguments":{}}', []),
    (
        "mistral",
        '[TOOL_CALLS][{"name":"f","arguments":{}},\n {"name":"g","arguments":{"x":1}}]',
        "",
        [("f", "{}"), ("g", '{"x":1}')],
    ),
    ("mistral", 'Hi [TOOL_CALLS] [{"name":"f","arguments":{}}] bye', "Hi  bye", [("f", "{}")]),
    ("mistral", "[TOOL_CALLS] what", "[TOOL_CALLS] what", []),
    ("json", '{"name": "f", "parameters": {"a": 1}}', "", [("f", '{"a": 1}')]),
    ("json", ' [{"name": "f", "arguments": {}}, {"name": "g", "arguments": {}}]', "", [("f", "{}"), ("g", "{}")]),
    ("json", '{"name":"f","parameters":{}}; {"name":"g","parameters":{}}', "", [("f", "{}"), ("g", "{}")]),
    ("json", '{"answer": 42}', '{"answer": 42}', []),
    ("json", "[1, 2]", "[1, 2]", []),
    ("json", 'Sure: {"name":"f","parameters":{}}', 'Sure: {"name":"f","parameters":{}}', []),
]


@pytest.mark.parametrize("size", [0, 1, 2, 3, 7])
@pytest.mark.parametrize(("kind", "text", "content", "calls"), CASES)
def test_calls_and_content(kind: ToolFormat, text: str, content: str, calls: list[tuple[str, str]], size: int) -> None:
    assert parse(text, kind, size) == (content, calls)


MARKS = ["<tool_call>", "</tool_call>", "[TOOL_CALLS]", "<tool"]
WORDS = ['"name"', '"f"', '"arguments"', '{"a": "}"}', "null", "é", "k" * 257]
CALLS = ['{"name":"f","arguments":{}}', '{"name":"f","arguments":', '{"arguments":{},"name":"f"']
_fragments = st.sampled_from([*'{}[]":,\\; \na1', *MARKS, *WORDS, *CALLS])


@given(st.sampled_from(get_args(ToolFormat)), st.lists(_fragments, max_size=14).map("".join), st.randoms())
def test_any_split_gives_the_same_result(kind: ToolFormat, text: str, random) -> None:
    parser, pieces, rest = ToolParser(kind), [], text
    while rest:
        size = random.randint(1, 6)
        pieces.append(parser.push(rest[:size]))
        rest = rest[size:]
    pieces.append(parser.flush())
    assert parser.settled == len(text)
    assert _merge(pieces) == parse(text, kind)


@given(st.sampled_from(get_args(ToolFormat)), st.text('<{["nameé1: \n', max_size=60))
def test_text_without_a_call_is_never_lost(kind: ToolFormat, text: str) -> None:
    assert parse(text, kind, 3) == (text, [])


@given(
    st.dictionaries(st.text(max_size=5), st.recursive(st.text(max_size=5), st.lists, max_leaves=5), max_size=4),
    st.integers(1, 9),
)
def test_arguments_arrive_as_they_were_written(arguments: dict, size: int) -> None:
    text = json.dumps(arguments, ensure_ascii=False)
    assert parse(f'<tool_call>{{"name": "f", "arguments": {text}}}</tool_call>', "hermes", size) == ("", [("f", text)])


def test_arguments_stream_while_the_object_is_open() -> None:
    parser = ToolParser("hermes")
    assert parser.push('<tool_call>{"name": "f", "arguments"') == ("", ())
    _, (head, first) = parser.push(': {"a": ')
    assert (head.name, head.arguments, first.arguments, first.id) == ("f", "", '{"a": ', None)
    _, (second,) = parser.push("12")
    assert second == ToolCallDelta(0, arguments="12")


def test_only_the_beginning_of_a_marker_is_held_back() -> None:
    parser = ToolParser("hermes")
    assert parser.push("1 <tool")[0] == "1 "
    assert parser.push("box>")[0] == "<toolbox>"


def test_a_function_that_was_not_offered_is_content() -> None:
    assert parse(CALL, "hermes", 4, names=("g",)) == (CALL, [])


@pytest.mark.parametrize(
    ("template", "kind"),
    [
        (None, None),
        ("{{ messages[0].content }}", None),
        (r"{% if tools %}<tool_call>{\"name\": <name>, \"arguments\": <object>}{% endif %}", "hermes"),
        ('{% if tools %}<tool_call>{"name": ..., "arguments": ...}{% endif %}', "hermes"),
        ("{% if tools %}<tool_call><function={{ tool_call.name }}>{% endif %}", None),
        ("{% if tools %}[TOOL_CALLS]name[ARGS]{}{% endif %}", None),
        ("{% if tools %}[AVAILABLE_TOOLS]{% endif %}[TOOL_CALLS]", "mistral"),
        ('{% if tools %}{{ \'{"name": function name, "parameters": dictionary}\' }}{% endif %}<|python_tag|>', "json"),
    ],
)
def test_format_is_detected_from_the_template(template: str | None, kind: ToolFormat | None) -> None:
    assert detect_format(template) == kind
