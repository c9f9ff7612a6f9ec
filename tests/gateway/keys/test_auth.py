"""Who gets in, as whom, and where: the middleware over a ring, without a server."""

from hashlib import sha256
from typing import Any

import msgspec
import pytest

from gateway.identity import ANONYMOUS
from gateway.keys.issue import issue_key
from gateway.keys.record import KeySpec
from gateway.keys.ring import KeyRing
from gateway.keys.static import static_identities
from gateway.middleware.auth import Auth

USER, ADMIN = b"user", b"admin"
LOCAL = (("host", "127.0.0.1:8000"),)


class Answer:
    """What came of a request: an error, or the state that the application saw."""

    def __init__(self) -> None:
        self.status = 0
        self.headers: dict[bytes, bytes] = {}
        self.code = ""
        self.state: dict[str, Any] | None = None


async def ask(ring: KeyRing, path: str = "/v1/models", *headers: tuple[str, str], method="GET", client="127.0.0.1") -> Answer:
    answer = Answer()

    async def application(scope, receive, send) -> None:
        answer.state = scope["state"]

    async def send(message) -> None:
        if message["type"] == "http.response.start":
            answer.status, answer.headers = message["status"], dict(message["headers"])
        else:
            answer.code = msgspec.json.decode(message["body"])["error"]["code"]

    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "client": (client, 1234) if client else None,
        "headers": [(name.encode(), value.encode("latin-1")) for name, value in headers],
        "state": {"request_id": "r"},
    }
    await Auth(application, ring, ["/", "/console/x.js"])(scope, None, send)
    return answer


def guarded() -> KeyRing:
    digests = [sha256(key).digest() for key in (USER, ADMIN)]
    return KeyRing(static=static_identities(digests, digests[1:]))


@pytest.mark.parametrize(
    "headers",
    [
        [("authorization", "Bearer user")],
        [("authorization", "bEARER   user ")],
        [("x-api-key", "user")],
        [("authorization", "Basic abc"), ("x-api-key", "user")],
        [("x-api-key", "wrong"), ("authorization", "Bearer user")],
    ],
)
async def test_key_is_found_and_its_owner_is_known(headers):
    answer = await ask(guarded(), "/v1/models", *headers)
    assert answer.state is not None
    identity = answer.state["identity"]
    assert identity.tenant == answer.state["tenant"] == sha256(USER).hexdigest()[:32]
    assert answer.state["request_id"] == "r"


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [("authorization", "Bearer")],
        [("authorization", "Bearer ")],
        [("authorization", "Bearer wrong")],
        [("authorization", "Bearer wrong"), ("x-api-key", "user")],
        [("authorization", "Basic user")],
        [("authorization", "user")],
        [("authorization", "Bearer user, user")],
        [("x-api-key", "")],
        [("x-api-key", "User")],
        [("x-api-key", "é")],
        [("cookie", "key=user")],
    ],
)
async def test_without_a_good_key_nobody_gets_in(headers):
    answer = await ask(guarded(), "/v1/models", *headers)
    assert (answer.status, answer.code, answer.state) == (401, "invalid_api_key", None)
    assert answer.headers[b"www-authenticate"].startswith(b"Bearer")


@pytest.mark.parametrize("path", ["/health", "/health/ready", "/", "/console/x.js"])
async def test_health_and_the_console_are_public(path):
    answer = await ask(guarded(), path)
    assert answer.state is not None
    assert answer.state["identity"] is ANONYMOUS


@pytest.mark.parametrize(
    ("path", "method"), [("/healthy", "GET"), ("/console/x.js", "POST"), ("/metrics", "GET"), ("/admin", "GET")]
)
async def test_everything_else_is_not(path, method):
    assert (await ask(guarded(), path, method=method)).status == 401


async def test_without_keys_everybody_is_anonymous():
    answer = await ask(KeyRing(), "/v1/models", ("authorization", "Bearer whatever"), client="192.0.2.1")
    assert answer.state is not None
    assert answer.state["identity"] is ANONYMOUS
    assert answer.state["tenant"] == ""


async def test_key_can_be_asked_for_although_there_is_none():
    assert (await ask(KeyRing(required=True))).status == 401


async def test_unknown_key_is_not_called_wrong_before_the_store_was_read(switch, clock):
    record, key = issue_key(KeySpec(name="k"), clock.now)
    await switch.add(record)
    switch.down = True
    ring = KeyRing(switch, static_identities([sha256(USER).digest()]), now=clock)
    await ring.start()
    answer = await ask(ring, "/v1/models", ("x-api-key", key))
    assert (answer.status, answer.code, answer.headers[b"retry-after"]) == (503, "key_store_unavailable", b"2")
    assert (await ask(ring, "/v1/models", ("x-api-key", "user"))).state is not None
    assert (await ask(ring)).status == 401
    await ring.close()


ADMIN_PATHS = ["/admin", "/admin/keys", "/admin/keys/key_1", "//admin/keys", "///admin", "admin/keys", "/admin/"]


@pytest.mark.parametrize("path", ADMIN_PATHS)
async def test_administration_needs_an_admin_key(path):
    assert (await ask(guarded(), path)).status == 401
    refused = await ask(guarded(), path, ("x-api-key", "user"))
    assert (refused.status, refused.code, refused.state) == (403, "admin_key_required", None)
    allowed = await ask(guarded(), path, ("x-api-key", "admin"), client="192.0.2.1")
    assert allowed.state is not None
    assert allowed.state["identity"].is_admin


@pytest.mark.parametrize("path", ["/administrator", "/v1/admin", "/admins/keys"])
async def test_other_paths_do_not(path):
    assert (await ask(guarded(), path, ("x-api-key", "user"))).state is not None


@pytest.mark.parametrize("client", ["127.0.0.1", "127.8.9.1", "::1", "::ffff:127.0.0.1"])
@pytest.mark.parametrize("host", ["127.0.0.1:8000", "localhost", "LOCALHOST:1", "[::1]:8000"])
async def test_without_keys_this_machine_may_administer(client, host):
    assert (await ask(KeyRing(), "/admin/keys", ("host", host), client=client)).state is not None
    page = await ask(KeyRing(), "/admin/keys", ("host", host), ("origin", f"http://{host}"), client=client)
    assert page.state is not None


@pytest.mark.parametrize(
    ("client", "headers"),
    [
        ("192.0.2.1", LOCAL),
        ("::ffff:192.0.2.1", LOCAL),
        ("", LOCAL),
        ("127.0.0.1", ()),
        ("127.0.0.1", (("host", "evil.example"),)),
        ("127.0.0.1", (("host", "localhost.evil.example:8000"),)),
        ("127.0.0.1", (*LOCAL, ("origin", "https://evil.example"))),
        ("127.0.0.1", (*LOCAL, ("origin", "null"))),
        ("127.0.0.1", (*LOCAL, ("origin", "http://127.0.0.1:3000"))),
        ("127.0.0.1", (*LOCAL, ("x-forwarded-for", "192.0.2.1"))),
        ("127.0.0.1", (*LOCAL, ("forwarded", "for=192.0.2.1"))),
    ],
)
@pytest.mark.parametrize("path", ADMIN_PATHS)
async def test_without_keys_nobody_else_may(client, headers, path):
    answer = await ask(KeyRing(), path, *headers, client=client)
    assert (answer.status, answer.code, answer.state) == (403, "admin_key_required", None)
