"""What every request meets before and after its handler, over real connections."""

import socket
from collections.abc import Iterator
from urllib.parse import urlsplit

import httpx
import pytest

LIMIT = 2048
CONFIG = f"""
[server]
max_body_bytes = {LIMIT}
body_timeout_s = 0.5
cors_origins = ["localhost", "https://app.example"]

[models.fake]
engine = "fake"
replies = [{{ text = "Hello there!" }}]
"""
CHAT = {"model": "fake", "messages": [{"role": "user", "content": "hi"}]}
KINDS_OF_ANSWERS = [
    ("GET", "/v1/models", 200),
    ("GET", "/nowhere", 404),
    ("DELETE", "/v1/models", 405),
    ("POST", "/v1/chat/completions", 400),
    ("GET", "/v1/models/nope", 404),
    ("GET", "/v1/v1/models", 404),
    ("GET", "/console/../../etc/passwd", 404),
]


@pytest.fixture(scope="module")
def client(tmp_path_factory, running_gateway) -> Iterator[httpx.Client]:
    with running_gateway(tmp_path_factory.mktemp("http"), CONFIG) as gateway:
        yield gateway.client


def exchange(client: httpx.Client, data: bytes, *more: bytes) -> bytes:
    """Send raw bytes, and read until the server closes or falls silent for a second."""
    url = urlsplit(str(client.base_url))
    with socket.create_connection((url.hostname, url.port), timeout=5) as connection:
        for part in (data, *more):
            connection.sendall(part)
        received = b""
        try:
            while piece := connection.recv(65536):
                received += piece
                connection.settimeout(1)
        except TimeoutError:
            pass
        return received


def is_error(response: httpx.Response, code: str | None = None) -> bool:
    error = response.json()["error"]
    return set(error) == {"message", "type", "param", "code"} and (code is None or error["code"] == code)


@pytest.mark.parametrize(("method", "path", "status"), KINDS_OF_ANSWERS)
def test_every_answer_carries_a_request_id(client, method, path, status):
    response = client.request(method, path, headers={"x-request-id": "abc.DEF_1-2"})
    assert response.status_code == status
    assert response.headers["x-request-id"] == "abc.DEF_1-2"
    assert response.headers["openai-processing-ms"].isdecimal()


@pytest.mark.parametrize("inbound", ["a b", "x" * 129, "é".encode(), "a;b", ""])
def test_insane_request_id_is_replaced(client, inbound):
    answers = [client.get("/health/live", headers={"x-request-id": inbound}).headers.get_list("x-request-id") for _ in range(2)]
    assert all(len(ids) == 1 and ids[0].startswith("req_") for ids in answers)
    assert answers[0] != answers[1]


@pytest.mark.parametrize(
    "origin",
    ["http://localhost:3000", "https://127.0.0.1", "http://[::1]:8080", "http://app.localhost:1", "https://app.example"],
)
@pytest.mark.parametrize(("method", "path", "status"), KINDS_OF_ANSWERS)
def test_allowed_page_can_read_every_answer(client, origin, method, path, status):
    response = client.request(method, path, headers={"origin": origin})
    assert response.status_code == status
    assert response.headers["access-control-allow-origin"] == origin
    assert "x-request-id" in response.headers["access-control-expose-headers"]
    assert "retry-after" in response.headers["access-control-expose-headers"]
    assert response.headers["vary"] == "Origin"
    assert "access-control-allow-credentials" not in response.headers


@pytest.mark.parametrize(
    "origin",
    [
        "https://evil.example",
        "http://localhost.evil.example",
        "http://localhost:3000.evil.example",
        "null",
        "https://app.example.evil",
    ],
)
def test_other_page_gets_no_cors_headers(client, origin):
    assert not [name for name in client.get("/v1/models", headers={"origin": origin}).headers if name.startswith("access-")]


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/models", "/nowhere"])
def test_preflight_reflects_the_requested_headers(client, path):
    headers = {
        "origin": "http://localhost:3000",
        "access-control-request-method": "POST",
        "access-control-request-headers": "authorization, x-stainless-retry-count",
    }
    response = client.options(path, headers=headers)
    assert response.status_code == 204
    assert response.headers["access-control-allow-headers"] == "authorization, x-stainless-retry-count"
    assert "POST" in response.headers["access-control-allow-methods"]


def test_preflight_of_other_page_allows_nothing(client):
    response = client.options("/v1/models", headers={"origin": "https://evil.example", "access-control-request-method": "POST"})
    assert response.status_code == 204
    assert not [name for name in response.headers if name.startswith("access-")]


def test_star_answers_every_page_and_never_allows_credentials(start):
    config = CONFIG.replace('["localhost", "https://app.example"]', '["*"]')
    with start(config) as gateway:
        headers = gateway.client.get("/v1/models", headers={"origin": "https://any.example"}).headers
        assert headers["access-control-allow-origin"] == "*"
        assert "access-control-allow-credentials" not in headers


def test_body_at_the_limit_is_read(client):
    padding = LIMIT - len(httpx.Request("POST", "http://x", json={**CHAT, "user": ""}).content)
    response = client.post("/v1/chat/completions", json={**CHAT, "user": "x" * padding})
    assert response.request.headers["content-length"] == str(LIMIT)
    assert response.status_code == 200


def test_declared_body_above_the_limit_is_refused_before_it_is_read(client):
    head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: 99999999999\r\n\r\n"
    answer = exchange(client, head)
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert b'"code":"request_too_large"' in answer
    assert b"99999999999 bytes" in answer
    assert b"100 Continue" not in answer


def test_chunked_body_above_the_limit_is_refused(client):
    response = client.post("/v1/chat/completions", content=iter([b"x" * 1000] * 3))
    assert response.status_code == 413
    assert is_error(response, "request_too_large")


@pytest.mark.parametrize("path", [b"/v1/chat/completions", b"/nowhere", b"/v1/models"])
def test_client_that_sends_all_of_a_huge_body_still_reads_the_refusal(client, path):
    head = b"POST %s HTTP/1.1\r\nhost: x\r\ncontent-length: 20000000\r\n\r\n" % path
    answer = exchange(client, head, b"x" * 20_000_000)
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert b"connection: close" in answer
    assert b'"code":"request_too_large"' in answer


def test_slow_body_is_refused_with_the_limit(client):
    answer = exchange(client, b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 50\r\n\r\n{")
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b"within 0.5 s (1 bytes came)" in answer


def test_compressed_body_is_refused(client):
    response = client.post("/v1/chat/completions", content=b"\x1f\x8b", headers={"content-encoding": "gzip"})
    assert response.status_code == 415
    assert is_error(response, "unsupported_media_type")


@pytest.mark.parametrize("kind", [None, "application/x-www-form-urlencoded", "text/plain", "application/json; charset=utf-8"])
def test_content_type_does_not_matter(client, kind):
    content = httpx.Request("POST", "http://x", json=CHAT).content
    response = client.post("/v1/chat/completions", content=content, headers={"content-type": kind} if kind else {})
    assert response.status_code == 200


@pytest.mark.parametrize("path", ["/", "/v1/models", "/health/live", "/metrics", "/openapi.json"])
def test_head_is_get_without_a_body(client, path):
    head, get = client.head(path), client.get(path)
    assert head.status_code == get.status_code == 200
    assert head.content == b""
    assert head.headers["content-type"] == get.headers["content-type"]


def test_head_of_a_post_route_is_not_allowed(client):
    response = client.head("/v1/chat/completions")
    assert response.status_code == 405
    assert "POST" in response.headers["allow"]


@pytest.mark.parametrize("path", ["/v1/models/", "/health/", "/health/ready/"])
def test_trailing_slash_is_accepted(client, path):
    assert client.get(path).status_code == 200


def test_oversized_headers_are_refused_whole_or_in_pieces(client):
    start, piece = b"GET /v1/models HTTP/1.1\r\nhost: x\r\nlarge: ", b"x" * 50_000
    assert exchange(client, start + piece + piece + b"\r\n\r\n").startswith(b"HTTP/1.1 431 ")
    assert exchange(client, start, piece, piece).startswith(b"HTTP/1.1 431 ")


def test_what_is_no_http_gets_an_error_in_the_usual_shape(client):
    head, _, body = exchange(client, b"hello?\r\n\r\n").partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 ")
    assert is_error(httpx.Response(400, content=body))


def test_connection_stays_open_between_requests_with_long_headers(client):
    request = b"GET /health/live HTTP/1.1\r\nhost: x\r\nlarge: " + b"x" * 30_000 + b"\r\n\r\n"
    assert exchange(client, request, request, request, request).count(b"HTTP/1.1 200 OK") == 4


def test_server_does_not_name_its_software(client):
    assert "server" not in client.get("/health/live").headers


@pytest.fixture(scope="module")
def guarded(tmp_path_factory, running_gateway) -> Iterator[httpx.Client]:
    with running_gateway(tmp_path_factory.mktemp("keys"), CONFIG, BATON_API_KEY="first,second") as gateway:
        yield gateway.client


@pytest.mark.parametrize(
    "headers", [{"authorization": "Bearer second"}, {"authorization": "bearer first"}, {"x-api-key": "first"}]
)
def test_key_opens(guarded, headers):
    assert guarded.get("/v1/models", headers=headers).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"authorization": "Bearer"},
        {"authorization": "Bearer third"},
        {"authorization": "Basic first"},
        {"x-api-key": "é".encode()},
    ],
)
@pytest.mark.parametrize("path", ["/v1/models", "/nowhere", "/metrics", "/openapi.json", "/v1/models/nope", "/healthy"])
def test_without_a_good_key_nothing_is_told(guarded, headers, path):
    response = guarded.get(path, headers={**headers, "origin": "http://localhost:1"})
    assert response.status_code == 401
    assert is_error(response, "invalid_api_key")
    assert response.headers["www-authenticate"].startswith("Bearer")
    assert response.headers["access-control-allow-origin"] == "http://localhost:1"


def test_key_is_asked_for_before_the_body_is_read(guarded):
    head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 99999999\r\n\r\n"
    assert exchange(guarded, head).startswith(b"HTTP/1.1 401 ")


@pytest.mark.parametrize("path", ["/health", "/health/live", "/health/ready", "/", "/console/console.js"])
def test_health_and_the_console_need_no_key(guarded, path):
    assert guarded.get(path).status_code == 200


def test_preflight_needs_no_key(guarded):
    headers = {
        "origin": "http://localhost:1",
        "access-control-request-method": "POST",
        "access-control-request-headers": "authorization",
    }
    assert guarded.options("/v1/chat/completions", headers=headers).headers["access-control-allow-headers"] == "authorization"


def test_console_is_cached_by_version_and_may_load_nothing_from_elsewhere(client):
    first = client.get("/")
    assert first.headers["content-type"] == "text/html; charset=utf-8"
    assert "default-src 'none'" in first.headers["content-security-policy"]
    again = client.get("/", headers={"if-none-match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")


def test_unknown_console_file_is_not_found(client):
    assert is_error(client.get("/console/nope.js"), "unknown_url")
