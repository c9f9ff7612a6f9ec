"""What is changed in a client's body, and that nothing else is."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.forwarding import ForwardRequest
from backends.remote.request_body import RequestBody
from tests.backends.remote.rig import forwarded

ODD = b'{ "seed" : 1.0e2, "model":"public" ,"big":123456789012345678901234567890,"t":"\\ud83d\\ude80 \xc3\xa9" }'


def rewrite(request: ForwardRequest, *, include_usage: bool = True, strip: tuple[str, ...] = ()) -> bytes:
    return RequestBody("their/modél", include_usage=include_usage, strip=strip).rewrite(request)


def test_only_the_model_changes_in_a_request_that_is_no_stream() -> None:
    sent = rewrite(forwarded(stream=False, raw=ODD))
    assert sent == ODD.replace(b'"public"', '"their/modél"'.encode())


def test_a_stream_is_asked_for_its_usage_at_the_end_of_the_body() -> None:
    sent = rewrite(forwarded(raw=ODD))
    assert sent == ODD.replace(b'"public"', '"their/modél"'.encode())[:-1] + b',"stream_options":{"include_usage":true}}'


@pytest.mark.parametrize("options", [None, {}, {"include_usage": False}, {"include_obfuscation": False}])
def test_options_that_are_there_are_kept_and_appear_once(options: dict[str, bool] | None) -> None:
    sent = rewrite(forwarded(stream_options=options))
    assert sent.count(b'"stream_options"') == 1
    assert json.loads(sent)["stream_options"] == (options or {}) | {"include_usage": True}


@pytest.mark.parametrize("path", ["/embeddings", "/responses", "/rerank"])
def test_other_endpoints_are_not_asked_for_usage(path: str) -> None:
    assert b"stream_options" not in rewrite(forwarded(path=path))


def test_a_client_that_asked_and_a_server_that_cannot_are_left_alone() -> None:
    assert b"stream_options" not in rewrite(forwarded(), include_usage=False)
    asked = forwarded(stream_options={"include_usage": True})
    assert rewrite(asked) == asked.body.replace(b'"public"', '"their/modél"'.encode())


@pytest.mark.parametrize(("raw", "sent"), [(b' {"a":1}', b' {"model":"m","a":1}'), (b"{ }", b'{"model":"m" }')])
def test_a_missing_model_is_put_first(raw: bytes, sent: bytes) -> None:
    assert RequestBody("m", include_usage=False, strip=()).rewrite(forwarded(raw=raw)) == sent


def test_stripped_fields_are_gone_and_the_rest_keeps_its_bytes() -> None:
    request = forwarded(stream=False, raw=ODD[:-1] + b', "user": {"model": "x"}, "note": "\\"user\\":1"}')
    sent = rewrite(request, strip=("user", "seed"))
    assert b'"big":123456789012345678901234567890' in sent
    assert b"\\ud83d\\ude80" in sent
    assert json.loads(sent).keys() == {"model", "big", "t", "note"}


def test_a_field_whose_name_is_written_with_escapes_is_stripped_too() -> None:
    sent = rewrite(forwarded(stream=False, raw=ODD[:-1] + b', "us\\u0065r": "alice"}'), strip=("user",))
    assert json.loads(sent).keys() == {"seed", "model", "big", "t"}


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
)


@given(st.dictionaries(st.text().filter(lambda name: name != "model"), VALUES), st.booleans())
def test_a_rewritten_body_says_the_same_but_for_model_and_usage(fields: dict[str, object], stream: bool) -> None:
    fields.pop("stream_options", None)
    sent = json.loads(rewrite(forwarded(raw=json.dumps({"model": "public"} | fields).encode(), stream=stream), strip=("user",)))
    usage = {"stream_options": {"include_usage": True}} if stream else {}
    expected = {name: value for name, value in fields.items() if name != "user"}
    assert sent == expected | {"model": "their/modél"} | usage
