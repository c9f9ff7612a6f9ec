"""The OpenAPI 3.1 document of the gateway, made from the very Structs that decode and encode the bodies.

litestar could generate one, but handlers take raw bodies here (errors and limits are ours), so it would see nothing. Built when
it is first asked for: nobody should pay for it at start.
"""

from functools import cache
from typing import Any

import msgspec

from gateway.schema.chat import ChatRequest
from gateway.schema.chat_response import ChatCompletion
from gateway.schema.completions import Completion, CompletionRequest
from gateway.schema.embeddings import EmbeddingList, EmbeddingRequest
from gateway.schema.messages_api import CountTokensRequest, MessagesRequest
from gateway.schema.messages_api_answer import MessageAnswer, TokenCount
from gateway.schema.models import Model, ModelList
from gateway.schema.responses import ResponseRequest
from gateway.schema.responses_answer import ResponseObject
from gateway.schema.tokenize import DetokenizeAnswer, DetokenizeBody, Piece, TokenizeBody
from gateway.version import gateway_version


class TokenizedText(msgspec.Struct, frozen=True):
    """`TokenizeAnswer`, whose list of either ids or pieces msgspec can encode but not describe."""

    tokens: list[int | Piece]
    count: int
    max_model_len: int | None = None
    token_strs: list[str] | None = None


class ErrorObject(msgspec.Struct, frozen=True):
    """What went wrong. `param` is the JSON path of the field at fault, `code` a stable word for programs."""

    message: str
    type: str
    param: str | None
    code: str | None


class ErrorAnswer(msgspec.Struct, frozen=True):
    """The body of every error, on every path."""

    error: ErrorObject


class ModelHealth(msgspec.Struct, frozen=True):
    """How one model is."""

    state: str
    detail: str
    running: int
    waiting: int
    slots: int


class Readiness(msgspec.Struct, frozen=True):
    """How the gateway is: `ready`, `loading`, `unavailable` or `draining`."""

    status: str
    models: dict[str, ModelHealth]


_POSTS: tuple[tuple[str, str, str, type, type, bool], ...] = (
    ("/v1/chat/completions", "createChatCompletion", "Answer a conversation.", ChatRequest, ChatCompletion, True),
    ("/v1/completions", "createCompletion", "Continue a text.", CompletionRequest, Completion, True),
    ("/v1/embeddings", "createEmbedding", "Turn texts into vectors.", EmbeddingRequest, EmbeddingList, False),
    ("/v1/responses", "createResponse", "Answer, with state kept here.", ResponseRequest, ResponseObject, True),
    ("/v1/messages", "createMessage", "Answer a conversation (Anthropic).", MessagesRequest, MessageAnswer, True),
    (
        "/v1/messages/count_tokens",
        "countMessageTokens",
        "Count the tokens of a prompt (Anthropic).",
        CountTokensRequest,
        TokenCount,
        False,
    ),
    ("/tokenize", "tokenize", "Turn a text or a conversation into token ids.", TokenizeBody, TokenizedText, False),
    ("/detokenize", "detokenize", "Turn token ids into text.", DetokenizeBody, DetokenizeAnswer, False),
)
_COMPONENTS = (*(cls for row in _POSTS for cls in row[3:5]), Model, ModelList, ErrorAnswer, Readiness)
_STREAM = "With `stream: true`: server-sent events, each `data:` one JSON chunk, the last `data: [DONE]`."


@cache
def openapi_document() -> bytes:
    """Return the document as JSON."""
    schemas, components = msgspec.json.schema_components(_COMPONENTS, ref_template="#/components/schemas/{name}")
    refs = dict(zip(_COMPONENTS, schemas, strict=True))
    paths: dict[str, Any] = {}
    for path, name, text, request, answer, streams in _POSTS:
        operation = _operation(name, text, refs[answer], refs[ErrorAnswer], streams=streams)
        operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": refs[request]}}}
        paths[path] = {"post": operation}
    paths["/v1/models"] = {"get": _operation("listModels", "List the models.", refs[ModelList], refs[ErrorAnswer])}
    retrieve = _operation("retrieveModel", "Describe a model.", refs[Model], refs[ErrorAnswer])
    retrieve["parameters"] = [{"name": "model", "in": "path", "required": True, "schema": {"type": "string"}}]
    paths["/v1/models/{model}"] = {"get": retrieve}
    paths |= _operational(refs[Readiness])
    return msgspec.json.encode(
        {
            "openapi": "3.1.0",
            "info": {
                "title": "Baton",
                "version": gateway_version(),
                "description": "An OpenAI-compatible gateway.",
                "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
            },
            "servers": [{"url": "/"}],
            "security": [{}, {"bearer": []}, {"apiKey": []}],
            "paths": paths,
            "components": {
                "schemas": components,
                "securitySchemes": {
                    "bearer": {"type": "http", "scheme": "bearer"},
                    "apiKey": {"type": "apiKey", "in": "header", "name": "X-Api-Key"},
                },
            },
        }
    )


def _operation(name: str, text: str, answer: object, error: object, *, streams: bool = False) -> dict[str, Any]:
    content: dict[str, Any] = {"application/json": {"schema": answer}}
    if streams:
        content["text/event-stream"] = {"schema": {"type": "string", "description": _STREAM}}
    return {
        "operationId": name,
        "summary": text,
        "responses": {
            "200": {"description": "The answer.", "content": content},
            "default": {"description": "An error.", "content": {"application/json": {"schema": error}}},
        },
    }


def _operational(readiness: object) -> dict[str, Any]:
    def answer(text: str, media_type: str, schema: object) -> dict[str, Any]:
        return {"description": text, "content": {media_type: {"schema": schema}}}

    text: dict[str, object] = {"type": "string"}
    status = {"type": "object", "properties": {"status": {"const": "ok"}}, "required": ["status"]}
    ready = {"200": answer("All models serve.", "application/json", readiness)}
    ready["503"] = answer("Some model does not, or the gateway drains.", "application/json", readiness)
    rows: dict[str, tuple[str, str, dict[str, Any]]] = {
        "/health/live": ("live", "Does the process live?", {"200": answer("It does.", "application/json", status)}),
        "/health/ready": ("ready", "Can all models answer?", ready),
        "/health": ("health", "The same as /health/ready.", ready),
        "/metrics": ("metrics", "Prometheus metrics.", {"200": answer("Text exposition format.", "text/plain", text)}),
    }
    return {
        path: {"get": {"operationId": name, "summary": summary, "responses": responses}}
        for path, (name, summary, responses) in rows.items()
    }
