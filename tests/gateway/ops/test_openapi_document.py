"""The OpenAPI document tells the truth about the routes and the bodies."""

import json
import re
from collections.abc import Iterator

import jsonschema
import pytest

from backends.fake import FakeBackend, FakeModel
from gateway.app import create_litestar
from gateway.config import ServerConfig, Settings
from gateway.console import console_route, read_console
from gateway.openapi import openapi_document
from gateway.operation import Operation
from gateway.services import Services
from gateway.store.config import MEMORY, StoreConfig

DOCUMENT = json.loads(openapi_document())
UNDOCUMENTED = {"/openapi.json"}
ALIASES = {"/v1/tokenize", "/v1/detokenize", "/rerank"}


def references(node: object) -> Iterator[str]:
    if isinstance(node, dict):
        for key, value in node.items():
            if key == "$ref":
                yield value
            else:
                yield from references(value)
    elif isinstance(node, list):
        for value in node:
            yield from references(value)


def validate(instance: object, name: str) -> None:
    root = {"$ref": f"#/components/schemas/{name}", "components": DOCUMENT["components"]}
    jsonschema.Draft202012Validator(root).validate(instance)


def test_every_reference_resolves():
    for reference in references(DOCUMENT):
        assert reference.removeprefix("#/components/schemas/") in DOCUMENT["components"]["schemas"]


def test_every_schema_is_valid_json_schema():
    for schema in DOCUMENT["components"]["schemas"].values():
        jsonschema.Draft202012Validator.check_schema(schema)


def test_document_has_the_members_that_openapi_requires():
    assert DOCUMENT["openapi"].startswith("3.1.")
    assert {"title", "version"} <= DOCUMENT["info"].keys()
    names = []
    for path, methods in DOCUMENT["paths"].items():
        for operation in methods.values():
            names.append(operation["operationId"])
            assert all("description" in response for response in operation["responses"].values())
            in_path = [parameter["name"] for parameter in operation.get("parameters", ()) if parameter["in"] == "path"]
            assert in_path == re.findall(r"{(\w+)}", path)
    assert len(names) == len(set(names))


def served() -> set[tuple[str, str]]:
    """Every path and method of the application but for the console's; what generates is plain ASGI and takes POST."""
    settings = Settings(server=ServerConfig(), models={}, store=StoreConfig(path=MEMORY))
    services = Services(settings, {"m": FakeBackend("m", FakeModel())}, {})
    app = create_litestar(services, Operation(services), console_route(read_console()))
    routes = {(route.path, method) for route in app.routes for method in getattr(route, "methods", None) or ("POST",)}
    return {
        (re.sub(r":\w+}", "}", path).rstrip("/"), method.lower())
        for path, method in routes
        if method not in ("HEAD", "OPTIONS")
    }


def test_document_lists_exactly_the_routes_that_exist():
    documented = {(path, method) for path, methods in DOCUMENT["paths"].items() for method in methods}
    consoles = {path for path, _ in served() if path == "" or path.startswith(("/console", "/favicon"))}
    assert {route for route in served() if route[0] not in UNDOCUMENTED | ALIASES | consoles} == documented


@pytest.fixture(scope="module")
def client(tmp_path_factory, running_gateway):
    with running_gateway(tmp_path_factory.mktemp("openapi")) as gateway:
        yield gateway.client


MESSAGES = [{"role": "user", "content": "hi"}]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/chat/completions", {"model": "fake", "messages": MESSAGES, "logprobs": True, "top_logprobs": 2, "n": 2}),
        ("/v1/completions", {"model": "fake", "prompt": "hi", "max_tokens": 3, "logprobs": 1}),
        ("/v1/embeddings", {"model": "fake", "input": ["hi", "ho"]}),
        ("/v1/embeddings", {"model": "fake", "input": "hi", "encoding_format": "base64"}),
        ("/tokenize", {"model": "fake", "prompt": "hi"}),
        ("/tokenize", {"model": "fake", "content": "hi", "with_pieces": True}),
        ("/detokenize", {"model": "fake", "tokens": [104, 105]}),
    ],
)
def test_real_bodies_fit_their_schemas(client, path, body):
    operation = DOCUMENT["paths"][path]["post"]
    validate(body, name_of(operation["requestBody"]["content"]["application/json"]["schema"]))
    response = client.post(path, json=body)
    assert response.status_code == 200
    validate(response.json(), name_of(operation["responses"]["200"]["content"]["application/json"]["schema"]))


@pytest.mark.parametrize(
    ("path", "documented", "status"),
    [
        ("/v1/models", "/v1/models", "200"),
        ("/v1/models/fake", "/v1/models/{model}", "200"),
        ("/v1/models/nope", "/v1/models/{model}", "default"),
        ("/health", "/health", "200"),
        ("/health/ready", "/health/ready", "200"),
    ],
)
def test_real_answers_fit_their_schemas(client, path, documented, status):
    content = DOCUMENT["paths"][documented]["get"]["responses"][status]["content"]["application/json"]
    validate(client.get(path).json(), name_of(content["schema"]))


def test_served_document_is_this_one(client):
    assert client.get("/openapi.json").json() == DOCUMENT


def name_of(schema: dict[str, str]) -> str:
    return schema["$ref"].removeprefix("#/components/schemas/")
