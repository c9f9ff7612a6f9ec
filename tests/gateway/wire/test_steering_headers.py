"""Headers that steer a request are honoured or refused by name, over HTTP."""

import httpx
import pytest

from tests.gateway.wire.raw import HI


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("x-baton-tags", "a,b,c,d,e,f,g,h,eu"),
        ("x-baton-priority", "urgent"),
        ("x-baton-timeout", "nan"),
        ("x-baton-timeout", "0"),
        ("x-baton-cache", "always"),
    ],
)
def test_a_wrong_steering_header_is_refused_by_name(http: httpx.Client, name: str, value: str) -> None:
    answer = http.post("/v1/chat/completions", json={"model": "fake", "messages": HI}, headers={name: value})
    assert answer.status_code == 400, answer.text
    assert (answer.json()["error"]["code"], answer.json()["error"]["param"]) == ("invalid_value", name)
