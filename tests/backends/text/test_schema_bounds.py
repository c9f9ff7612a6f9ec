"""Schemas that are refused before anything is compiled, each with the bound it broke."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.errors import Rejected
from backends.text.pattern_size import pattern_size
from backends.text.schema_bounds import schema_text
from backends.text.schema_recursion import endless

SELF: dict[str, Any] = {"$ref": "#"}


def _nested(keyword: str, depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(depth):
        schema = {keyword: [schema]} if keyword == "anyOf" else {"type": "object", "properties": {"a": schema}}
    return schema


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "deep anyOf": (_nested("anyOf", 10_000), "more than 64 levels"),
    "deep properties": (_nested("properties", 40), "more than 64 levels"),
    "deep default": ({"default": _nested("anyOf", 100)}, "more than 64 levels"),
    "many values": ({"enum": [[0] * 1000] * 5}, "more than 4096 values"),
    "long text": ({"const": "x" * 70_000}, "at most 65536"),
    "many properties": ({"properties": {f"p{i}": True for i in range(600)}}, "600 properties, at most 512"),
    "large enum": ({"enum": list(range(1100))}, "1100 values, at most 1024"),
    "long pattern": ({"pattern": "a" * 20_000}, "20000 characters, at most 1024"),
    "large pattern": ({"pattern": "((a{1,1000}){1,1000}){1,1000}"}, "at most 10000"),
    "large pattern of names": ({"patternProperties": {"(a{999}){999}": True}}, "at most 10000"),
    "maxLength": ({"maxLength": 10**9}, "from 0 to 100000"),
    "minItems": ({"minItems": -1}, "from 0 to 10000"),
    "minProperties": ({"minProperties": True}, "from 0 to 64"),
    "not": ({"not": {"type": "string"}}, "'not' is not supported"),
    "if": ({"properties": {"a": {"if": True, "then": True}}}, "'if' is not supported"),
    "unknown": ({"items": {"frobnicate": 1}}, "'frobnicate' is not supported"),
    "options of the compiler": ({"x-guidance": {"lenient": True}}, "'x-guidance' is not supported"),
    "a number as schema": ({"items": 5}, "must be an object or a boolean"),
    "a list as properties": ({"properties": [1]}, "must be objects"),
    "an object as anyOf": ({"anyOf": {}}, "must be lists"),
    "a name as required": ({"required": "a"}, "list of names"),
    "lone surrogate": ({"const": "\ud800"}, "cannot be written as JSON"),
    "endless object": ({"type": "object", "properties": {"a": SELF}, "required": ["a"]}, "recursive without an end"),
    "endless array": ({"type": "array", "items": SELF, "minItems": 1}, "recursive without an end"),
    "endless reference": ({"allOf": [SELF]}, "recursive without an end"),
    "endless pair": (
        {"$ref": "#/$defs/a", "$defs": {"a": {"anyOf": [{"$ref": "#/$defs/b"}]}, "b": {"$ref": "#/$defs/a"}}},
        "recursive",
    ),
    "endless option": (
        {"type": "object", "properties": {"a": {"$ref": "#/$defs/l"}}, "$defs": {"l": {"allOf": [{"$ref": "#/$defs/l"}]}}},
        "recursive",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_schema_out_of_bounds_is_refused_with_the_bound(name: str) -> None:
    schema, reason = REFUSED[name]
    with pytest.raises(Rejected) as caught:
        schema_text(schema, "here")
    assert reason in caught.value.message
    assert caught.value.param == "here"
    assert len(caught.value.message) < 400


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {
            "type": "object",
            "properties": {"not": {"type": "string"}, "if": {}},
            "required": ["not"],
            "title": "T",
            "description": "d",
        },
        {"type": "object", "properties": {"next": {"anyOf": [SELF, {"type": "null"}]}}, "required": ["next"]},
        {"type": "object", "properties": {"children": {"type": "array", "items": SELF}}, "required": ["children"]},
        {"type": "object", "properties": {"a": SELF}},
        {"type": ["object", "null"], "properties": {"a": SELF}, "required": ["a"]},
        {"properties": {"a": {"enum": [1, {"x": [2]}], "default": {"not": 1}}}, "additionalProperties": False},
        {"$defs": {"a~/b": {"type": "string"}}, "$ref": "#/$defs/a~0~1b"},
        _nested("properties", 30),
    ],
)
def test_a_sound_schema_is_accepted(schema: dict[str, Any]) -> None:
    assert schema_text(schema, "here").startswith("{")


_json = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.text(max_size=3),
    lambda x: (
        st.lists(x, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "type",
                    "properties",
                    "anyOf",
                    "allOf",
                    "items",
                    "$ref",
                    "required",
                    "minItems",
                    "$defs",
                    "a",
                    "enum",
                    "pattern",
                ]
            ),
            x,
            max_size=3,
        )
    ),
    max_leaves=12,
)


@given(
    st.dictionaries(
        st.sampled_from(["type", "properties", "anyOf", "items", "$ref", "required", "prefixItems", "const"]), _json, max_size=4
    )
)
def test_any_json_is_either_accepted_or_refused(schema: dict[str, Any]) -> None:
    try:
        schema_text(schema, "here")
    except Rejected:
        return


def test_a_long_chain_of_references_is_followed_in_linear_time() -> None:
    schema: dict[str, Any] = {"$ref": "#/$defs/d0", "$defs": {f"d{i}": {"$ref": f"#/$defs/d{i + 1}"} for i in range(1000)}}
    schema["$defs"]["d1000"] = {"type": "string"}
    assert not endless(schema)
    schema["$defs"]["d1000"] = {"$ref": "#/$defs/d0"}
    assert endless(schema)


@pytest.mark.parametrize(
    ("pattern", "size"),
    [
        ("", 0),
        ("abc", 3),
        (r"^\d{4}-\d{2}$", 9),
        ("(ab){3}", 6),
        ("((a{2}){3}){4}", 24),
        ("[]a{9}]{5}", 5),
        (r"\({3}\{", 4),
        ("a{2,}b{,3}", 2 + 5),
        ("(a|bc)*", 3),
        (")(", 1),
    ],
)
def test_repetitions_multiply(pattern: str, size: int) -> None:
    assert pattern_size(pattern) == size
