"""The field `model` of a body that is forwarded: nobody else gets to say which model an upstream answers with."""

import json

import pytest

from gateway.translate.head import model_span, with_model_first

HI = '"messages":[{"role":"user","content":"\\u00e9 hi"}]'


def test_a_plain_model_is_found_where_it_stands() -> None:
    body = ('{"stream":true, "model" : "public",' + HI + "}").encode()
    span = model_span(body, "public")
    assert span is not None
    assert body[slice(*span)] == b'"public"'


@pytest.mark.parametrize(
    "fields",
    [
        r'"mod\u0065l":"public","metadata":{"model":"public"}',
        r'"mod\u0065l":"other","model":"public"',
        r'"model":"public","\u004Dodel":"other"',
        '"model":"public","Model":"other"',
        '"MODEL":"other","model":"public"',
        '"model":"other","model":"public"',
    ],
)
def test_a_second_spelling_of_model_does_not_reach_the_upstream(fields: str) -> None:
    body = ("{" + fields + "," + HI + "}").encode()
    assert model_span(body, "public") is None
    sent, span = with_model_first(body, "public")
    pairs = json.loads(sent, object_pairs_hook=list)
    assert [value for name, value in pairs if name.lower() == "model"] == ["public"]
    assert sent[slice(*span)] == b'"public"'
    assert HI.encode() in sent
