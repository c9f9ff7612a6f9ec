"""Constrained output: every answer that follows the masks is what the request asked for."""

import random
import re
from typing import Any

import jsonschema
import msgspec
import numpy as np
import pytest
from vocabulary import EOS, MARKER, SmolLM2, byte_compiler

from backends.errors import Failed, Rejected
from backends.text.answer import Answer
from backends.text.constraint import Compiler, Constraint, apply_mask
from backends.text.tool_parser import ToolFormat
from backends.types import (
    Chat,
    Function,
    GenerateRequest,
    JsonObjectFormat,
    JsonSchemaFormat,
    Message,
    ResponseFormat,
    Tool,
    ToolChoice,
)

NUMBER = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": False}
TREE = {
    "$defs": {
        "node": {
            "type": "object",
            "properties": {"next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]}},
            "required": ["next"],
            "additionalProperties": False,
        }
    },
    "$ref": "#/$defs/node",
}
PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 8, "pattern": "^[a-z]+$"},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "tags": {"type": "array", "items": {"enum": ["x", "y"]}, "maxItems": 3},
    },
    "required": ["name", "age"],
    "additionalProperties": False,
}
TOOLS = (Tool(Function(name="f", parameters=NUMBER)), Tool(Function(name="g")), Tool(Function(name="h", parameters=TREE)))


@pytest.fixture(scope="module")
def compiler() -> Compiler:
    return byte_compiler()


def _request(tools: tuple[Tool, ...] = (), response_format: ResponseFormat | None = None, **fields: Any) -> GenerateRequest:
    chat = Chat(messages=(Message(role="user", content="?"),), tools=tools, **fields)
    return GenerateRequest(id="r", model="m", prompt=chat, response_format=response_format)


def _allowed(constraint: Constraint, count: int = 258) -> list[int]:
    return np.flatnonzero(np.unpackbits(constraint.mask().view(np.uint8), bitorder="little")[:count]).tolist()


def _follow(constraint: Constraint, text: str) -> str:
    """Walk along `text` (the marker is one token); return what the masks allow, with dots if it may not end there."""
    constraint, done = constraint.copy(), ""
    for word in re.findall(r"\[TOOL_CALLS\]|.|\n", text):
        for token in [MARKER] if len(word) > 1 else word.encode():
            if token not in _allowed(constraint):
                return done
            constraint.accept(token)
        done += word
    return done if constraint.is_accepting else done + "..."


def _wander(constraint: Constraint, seed: int, budget: int = 400) -> bytes | None:
    """A model without any sense: a random allowed token each time; None when it does not come to an end."""
    choice, out = random.Random(seed), bytearray()
    for _ in range(budget):
        allowed = _allowed(constraint)
        if EOS in allowed or constraint.is_stopped:
            return bytes(out)
        # Closing characters are preferred, so that walks end.
        closing = [token for token in allowed if token in CLOSING]
        token = choice.choice(closing if closing and choice.random() < 0.5 else allowed)
        constraint.accept(token)
        out += b"[TOOL_CALLS]" if token == MARKER else bytes([token])
    return None


@pytest.mark.parametrize("schema", [PERSON, TREE, NUMBER, {"type": "array", "items": {"type": "boolean"}, "minItems": 2}])
def test_random_allowed_tokens_satisfy_the_schema(compiler: Compiler, schema: dict[str, Any]) -> None:
    finished = 0
    for seed in range(30):
        constraint = compiler.compile(_request(response_format=JsonSchemaFormat(schema)))
        assert constraint is not None
        text = _wander(constraint, seed)
        if text is not None:
            jsonschema.validate(msgspec.json.decode(text), schema)
            finished += 1
    assert finished >= 10


def test_json_object_is_an_object_without_needless_space(compiler: Compiler) -> None:
    constraint = compiler.compile(_request(response_format=JsonObjectFormat()))
    assert constraint is not None
    assert _allowed(constraint) == [ord("{")]
    assert _follow(constraint, '{"a": [1, {"b": null}]}') == '{"a": [1, {"b": null}]}'
    assert _follow(constraint, '{ "a"') == "{"
    assert _follow(constraint, '{"a": 1,  ') == '{"a": 1, '


def test_a_finished_constraint_stops_and_refuses_more(compiler: Compiler) -> None:
    constraint = compiler.compile(_request(response_format=JsonSchemaFormat(NUMBER)))
    assert constraint is not None
    assert bytes(constraint.forced()).startswith(b'{"a": ')
    for token in b'{"a": 1}':
        assert not constraint.is_stopped
        constraint.mask()
        constraint.accept(token)
    assert constraint.is_accepting
    assert constraint.is_stopped
    with pytest.raises(Failed):
        constraint.accept(ord("x"))


def test_copies_go_their_own_ways(compiler: Compiler) -> None:
    first = compiler.compile(_request(response_format=JsonSchemaFormat({"enum": ["ab", "cd"]})))
    assert first is not None
    first.accept(ord('"'))
    second = first.copy()
    first.accept(ord("a"))
    second.accept(ord("c"))
    assert (_allowed(first), _allowed(second)) == ([ord("b")], [ord("d")])


def test_nothing_to_constrain_is_no_constraint(compiler: Compiler) -> None:
    assert compiler.compile(_request()) is None
    assert compiler.compile(_request(TOOLS, tool_choice=ToolChoice("none"))) is None


CLOSING = frozenset(b'"]}n1')
F, G = '{"name": "f", "arguments": {"a": 1}}', '{"name": "g", "arguments": {}}'
HF, HG = f"<tool_call>\n{F}\n</tool_call>", f"<tool_call>\n{G}\n</tool_call>"
BF, BG = F.replace("arguments", "parameters"), G.replace("arguments", "parameters")
AUTO, REQUIRED, NAMED = ToolChoice(), ToolChoice("required"), ToolChoice("required", "f")
JSON = JsonObjectFormat()

WALKS: list[tuple[ToolFormat, ToolChoice, bool, ResponseFormat | None, str, str]] = [
    ("hermes", AUTO, True, None, "No calls <tool.", "No calls <tool."),
    ("hermes", AUTO, True, None, f"Ok: {HF}\n{HG} done", f"Ok: {HF}\n{HG} done"),
    ("hermes", AUTO, True, None, "<tool_call>\nno", "<tool_call>\n"),
    ("hermes", AUTO, True, None, '<tool_call>\n{"name": "z', '<tool_call>\n{"name": "'),
    ("hermes", AUTO, False, None, f"Ok: {HF}", f"Ok: {HF}"),
    ("hermes", AUTO, False, None, f"{HF}\n{HG}", HF),
    ("hermes", REQUIRED, True, None, f"{HF}\n{HG}", f"{HF}\n{HG}"),
    ("hermes", REQUIRED, True, None, "Hm", ""),
    ("hermes", REQUIRED, False, None, f"{HF}\n", HF),
    ("hermes", NAMED, True, None, HG, '<tool_call>\n{"name": "'),
    ("hermes", AUTO, True, JSON, '{"x": 1}', '{"x": 1}'),
    ("hermes", AUTO, True, JSON, HF, HF),
    ("hermes", AUTO, True, JSON, "Hm", ""),
    ("mistral", AUTO, True, None, "Hi", "Hi"),
    ("mistral", AUTO, True, None, f"Hi [TOOL_CALLS][{F}, {G}]", f"Hi [TOOL_CALLS][{F}, {G}]"),
    ("mistral", REQUIRED, False, None, f"[TOOL_CALLS][{F}, {G}]", f"[TOOL_CALLS][{F}"),
    ("mistral", REQUIRED, True, None, "Hi", ""),
    ("json", AUTO, True, None, 'Hi {"x"', 'Hi {"x"'),
    ("json", AUTO, True, None, '{"x"', '{"'),
    ("json", AUTO, True, None, f"[{BF}, {BG}]", f"[{BF}, {BG}]"),
    ("json", AUTO, True, JSON, '{"x": 1}', '{"x": 1}'),
    ("json", REQUIRED, False, None, BG, BG),
    ("json", REQUIRED, False, None, "[", ""),
    ("json", NAMED, True, None, BG, '{"name": "'),
]


@pytest.mark.parametrize(("kind", "choice", "parallel", "answer", "text", "allowed"), WALKS)
def test_tool_choice_decides_what_may_be_written(
    compiler: Compiler,
    kind: ToolFormat,
    choice: ToolChoice,
    parallel: bool,
    answer: ResponseFormat | None,
    text: str,
    allowed: str,
) -> None:
    request = _request(TOOLS, answer, tool_choice=choice, parallel_tool_calls=parallel)
    constraint = compiler.compile(request, kind)
    assert constraint is not None
    assert _follow(constraint, text) == allowed


@pytest.mark.parametrize("kind", ["hermes", "mistral", "json"])
def test_what_the_grammar_writes_the_parser_reads(compiler: Compiler, kind: ToolFormat) -> None:
    for seed in range(12):
        constraint = compiler.compile(_request(TOOLS, tool_choice=REQUIRED), kind)
        assert constraint is not None
        text = _wander(constraint, seed)
        if text is None:
            continue
        answer = Answer(0, (), kind, ["f", "g", "h"])
        delta = answer.push(0, text)
        last = answer.finish("stop")
        calls = [*(delta.tool_calls if delta else ()), *last.tool_calls]
        assert (delta.text if delta else "") + last.text == ""
        assert calls
        assert last.finish == "tool_calls"


REFUSED: list[tuple[GenerateRequest, str]] = [
    (_request(response_format=JsonSchemaFormat({"type": "strin"})), "response_format.json_schema.schema"),
    (_request(response_format=JsonSchemaFormat({"$ref": "#/nowhere"})), "response_format.json_schema.schema"),
    (_request(response_format=JsonSchemaFormat({"$ref": "http://127.0.0.1/x"})), "response_format.json_schema.schema"),
    (_request(response_format=JsonSchemaFormat({"type": "string", "format": "nope"})), "response_format.json_schema.schema"),
    (_request(response_format=JsonSchemaFormat({"type": "string", "pattern": "(?=a)b"})), "response_format.json_schema.schema"),
    (
        _request(response_format=JsonSchemaFormat({"allOf": [{"type": "string"}, {"type": "null"}]})),
        "response_format.json_schema.schema",
    ),
    (
        _request(response_format=JsonSchemaFormat({"oneOf": [{"type": "string"}, {"type": "string", "maxLength": 2}]})),
        "response_format.json_schema.schema",
    ),
    (
        _request((*TOOLS, Tool(Function(name="i", parameters={"type": "object", "properties": {"a": {"type": "strin"}}})))),
        "tools[3].function.parameters",
    ),
    (_request((Tool(Function(name="i", parameters={"type": "string"})),)), "tools[0].function.parameters"),
    (_request((Tool(Function(name="i", parameters={"not": {}})),)), "tools[0].function.parameters"),
    (_request(TOOLS, tool_choice=ToolChoice("required", "nobody")), "tool_choice"),
    (_request(TOOLS * 50), "tools"),
]


@pytest.mark.parametrize(("request_", "param"), REFUSED)
def test_what_cannot_be_enforced_is_refused(compiler: Compiler, request_: GenerateRequest, param: str) -> None:
    with pytest.raises(Rejected) as caught:
        compiler.compile(request_)
    assert caught.value.param == param
    assert len(caught.value.message) < 400


def _repeat(constraint: Constraint, token: int, times: int) -> None:
    for _ in range(times):
        constraint.mask()
        constraint.accept(token)


def test_a_grammar_that_outgrows_its_limits_raises_instead_of_letting_go(compiler: Compiler) -> None:
    schema = {"type": "string", "pattern": "^(((a{1,20}){1,20}){1,20})$"}
    constraint = compiler.compile(_request(response_format=JsonSchemaFormat(schema)))
    assert constraint is not None
    constraint.accept(ord('"'))
    with pytest.raises(Rejected, match="too complex") as caught:
        _repeat(constraint, ord("a"), 8000)
    assert caught.value.param == "response_format.json_schema.schema"
    again = compiler.compile(_request(response_format=JsonSchemaFormat(schema)))
    assert again is not None
    again.accept(ord('"'))
    _repeat(again, ord("a"), 5)


def test_logits_of_forbidden_tokens_become_minus_infinity(compiler: Compiler) -> None:
    constraint = compiler.compile(_request(response_format=JsonSchemaFormat({"enum": ["ab", "cd"]})))
    assert constraint is not None
    constraint.accept(ord('"'))
    logits = np.arange(258, dtype=np.float32)
    apply_mask(logits, constraint.mask())
    assert np.flatnonzero(np.isfinite(logits)).tolist() == [ord("a"), ord("c")]
    assert logits[ord("c")] == ord("c")


def test_surplus_logits_beyond_the_vocabulary_are_never_allowed() -> None:
    compiler = Compiler([bytes([i]) for i in range(256)] + [b"<|end|>"], {256}, [256], list, vocab_size=300)
    constraint = compiler.compile(_request(TOOLS))
    assert constraint is not None
    logits = np.zeros(300, np.float32)
    apply_mask(logits, constraint.mask())
    assert np.isfinite(logits[:256]).sum() > 150
    assert not np.isfinite(logits[257:]).any()


def test_a_real_vocabulary_writes_a_call_and_may_not_write_control_tokens() -> None:
    model = SmolLM2()
    constraint = model.compiler().compile(_request(TOOLS, tool_choice=NAMED, parallel_tool_calls=False))
    assert constraint is not None
    for token in model.tokenize(HF.encode()):
        allowed = _allowed(constraint, len(model.pieces))
        assert token in allowed
        assert not model.special.intersection(allowed)
        constraint.accept(token)
    assert constraint.is_stopped
