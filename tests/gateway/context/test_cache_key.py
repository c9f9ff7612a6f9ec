"""Which requests share an answer."""

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.context.cache_key import cache_key, choose_mode, is_determined, read_fields, wanted_mode
from gateway.errors import InvalidRequest

BODY: dict[str, Any] = {
    "model": "m",
    "messages": [{"role": "user", "content": "hi"}],
    "temperature": 0,
    "tools": [{"type": "function", "function": {"name": "f", "parameters": {"properties": {"a": {}, "b": {}}}}}],
}


def key(body: dict[str, Any], tenant: str = "acme", endpoint: Any = "chat", model: str = "m") -> bytes:
    return cache_key(tenant, endpoint, model, read_fields(msgspec.json.encode(body)))


def test_tenant_endpoint_and_model_decide() -> None:
    keys = {
        key(BODY),
        key(BODY, tenant="other"),
        key(BODY, endpoint="completions"),
        key(BODY, model="m2"),
        key(BODY, tenant=""),
    }
    assert len(keys) == 5


@pytest.mark.parametrize(
    "change",
    [
        {"user": "u"},
        {"metadata": {"a": "b"}},
        {"stream": True},
        {"stream_options": {"include_usage": True}},
        {"store": True},
        {"service_tier": "auto"},
        {"prompt_cache_key": "k"},
        {"safety_identifier": "s"},
        {"model": "alias"},
        {"stop": None},
        {"n": None},
    ],
    ids=str,
)
def test_what_decides_nothing_changes_nothing(change: dict[str, Any]) -> None:
    assert key(BODY | change) == key(BODY)


@pytest.mark.parametrize(
    "change",
    [
        {"messages": [{"role": "user", "content": "hi "}]},
        {"messages": [{"role": "system", "content": "hi"}]},
        {"temperature": 0.1},
        {"seed": 1},
        {"n": 2},
        {"logprobs": True},
        {"max_tokens": 1},
        {"tools": []},
        {"chat_template_kwargs": {"enable_thinking": False}},
        {"something_new": 1},
        {"stop": ""},
    ],
    ids=str,
)
def test_everything_else_decides(change: dict[str, Any]) -> None:
    assert key(BODY | change) != key(BODY)


def test_writing_does_not_decide() -> None:
    one = read_fields(b'{"messages":[{"role":"user","content":"\\u00e9"}],"temperature":0}')
    two = read_fields('{ "temperature" : 0,\n "messages" : [ {"role": "user", "content": "é"} ] }'.encode())
    assert cache_key("t", "chat", "m", one) == cache_key("t", "chat", "m", two)


def test_the_order_of_the_properties_in_a_schema_decides() -> None:
    turned = msgspec.json.decode(msgspec.json.encode(BODY))
    turned["tools"][0]["function"]["parameters"]["properties"] = {"b": {}, "a": {}}
    assert key(turned) != key(BODY)


plain = st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=3)
given_values = (
    st.booleans() | st.integers(-5, 5) | st.text(max_size=3) | st.lists(plain | st.lists(plain, max_size=2), max_size=3)
)
bodies = st.dictionaries(st.sampled_from(["a", "b", "ab", "messages"]), given_values)


@settings(deadline=None)
@given(bodies, bodies)
def test_different_requests_have_different_keys(one: dict[str, Any], two: dict[str, Any]) -> None:
    assert (key(one) == key(two)) == (msgspec.json.encode(one, order="sorted") == msgspec.json.encode(two, order="sorted"))


@pytest.mark.parametrize(
    ("endpoint", "fields", "determined"),
    [
        ("chat", {}, False),
        ("chat", {"temperature": 1}, False),
        ("chat", {"temperature": None, "seed": None}, False),
        ("chat", {"temperature": 0}, True),
        ("chat", {"temperature": 0.0, "n": 3}, True),
        ("completions", {"seed": 0}, True),
        ("embeddings", {}, True),
    ],
)
def test_determined_requests(endpoint: Any, fields: dict[str, Any], determined: bool) -> None:
    assert is_determined(endpoint, fields) is determined
    assert choose_mode(None, "auto", endpoint, fields) == ("use" if determined else "off")
    assert choose_mode(None, "off", endpoint, fields) == "off"
    assert choose_mode("refresh", "off", endpoint, fields) == "refresh"
    assert choose_mode("off", "auto", endpoint, fields) == "off"


def test_the_header_is_read_strictly() -> None:
    assert [wanted_mode(value) for value in (None, "use", " Refresh ", "OFF")] == [None, "use", "refresh", "off"]
    with pytest.raises(InvalidRequest, match="must be use, refresh or off, not 'yes'") as caught:
        wanted_mode("yes")
    assert caught.value.param == "x-baton-cache"


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b"[" * 5000, b'{"a":"\\ud800"}', b"\xff"], ids=lambda body: str(body[:9]))
def test_what_is_no_object_is_refused(body: bytes) -> None:
    with pytest.raises(InvalidRequest):
        read_fields(body)
