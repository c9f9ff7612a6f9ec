"""The OpenAPI 3.1 document of the gateway, made from the very Structs that decode and encode the bodies.

litestar could generate one, but handlers take raw bodies here (errors and limits are ours), so it would see nothing. Built when
it is first asked for: nobody should pay for it at start.
"""

import re
from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple

import msgspec

from gateway.keys.record import KeySpec
from gateway.keys.view import CreatedKey, KeyList, KeyView
from gateway.schema.batches import BatchObject, BatchPage, BatchRequest, FileDeleted, FileObject, FilePage
from gateway.schema.chat import ChatRequest
from gateway.schema.chat_response import ChatCompletion
from gateway.schema.completions import Completion, CompletionRequest
from gateway.schema.embeddings import EmbeddingList, EmbeddingRequest
from gateway.schema.messages_api import CountTokensRequest, MessagesRequest
from gateway.schema.messages_api_answer import MessageAnswer, TokenCount
from gateway.schema.models import Model, ModelList
from gateway.schema.responses import ConversationRequest, ItemsRequest, ResponseRequest
from gateway.schema.responses_answer import ConversationObject, Deleted, ItemList, ResponseObject
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


class Row(NamedTuple):
    """One operation. `takes` and `gives` are Structs; None stands for what has no schema here."""

    method: str
    path: str
    name: str
    text: str
    takes: type | None
    gives: type | None
    streams: bool = False
    form: bool = False


_ROWS = (
    Row("post", "/v1/chat/completions", "createChatCompletion", "Answer a conversation.", ChatRequest, ChatCompletion, True),
    Row("post", "/v1/completions", "createCompletion", "Continue a text.", CompletionRequest, Completion, True),
    Row("post", "/v1/embeddings", "createEmbedding", "Turn texts into vectors.", EmbeddingRequest, EmbeddingList),
    Row("post", "/v1/rerank", "rerank", "Order documents by how well they fit a query.", None, None),
    Row("post", "/v1/responses", "createResponse", "Answer, with state kept here.", ResponseRequest, ResponseObject, True),
    Row("get", "/v1/responses/{response_id}", "getResponse", "Give a stored response again.", None, ResponseObject),
    Row("delete", "/v1/responses/{response_id}", "deleteResponse", "Forget a stored response.", None, Deleted),
    Row("get", "/v1/responses/{response_id}/input_items", "listInputItems", "What a response answered.", None, ItemList),
    Row("post", "/v1/conversations", "createConversation", "Begin a conversation.", ConversationRequest, ConversationObject),
    Row("get", "/v1/conversations/{conversation_id}", "getConversation", "Show it.", None, ConversationObject),
    Row("delete", "/v1/conversations/{conversation_id}", "deleteConversation", "Forget it.", None, Deleted),
    Row("get", "/v1/conversations/{conversation_id}/items", "listItems", "Its items.", None, ItemList),
    Row("post", "/v1/conversations/{conversation_id}/items", "createItems", "Add items.", ItemsRequest, ItemList),
    Row("post", "/v1/messages", "createMessage", "Answer a conversation (Anthropic).", MessagesRequest, MessageAnswer, True),
    Row("post", "/v1/messages/count_tokens", "countMessageTokens", "Count a prompt.", CountTokensRequest, TokenCount),
    Row("post", "/v1/files", "uploadFile", "Keep the input of a batch.", None, FileObject, form=True),
    Row("get", "/v1/files", "listFiles", "List files.", None, FilePage),
    Row("get", "/v1/files/{file_id}", "getFile", "Describe a file.", None, FileObject),
    Row("get", "/v1/files/{file_id}/content", "getFileContent", "The bytes of a file.", None, None),
    Row("delete", "/v1/files/{file_id}", "deleteFile", "Forget a file.", None, FileDeleted),
    Row("post", "/v1/batches", "createBatch", "Run the lines of a file.", BatchRequest, BatchObject),
    Row("get", "/v1/batches", "listBatches", "List batches.", None, BatchPage),
    Row("get", "/v1/batches/{batch_id}", "getBatch", "Describe a batch.", None, BatchObject),
    Row("post", "/v1/batches/{batch_id}/cancel", "cancelBatch", "Ask for an early end.", None, BatchObject),
    Row("post", "/tokenize", "tokenize", "Turn a text or a conversation into token ids.", TokenizeBody, TokenizedText),
    Row("post", "/detokenize", "detokenize", "Turn token ids into text.", DetokenizeBody, DetokenizeAnswer),
    Row("get", "/v1/models", "listModels", "List the models.", None, ModelList),
    Row("get", "/v1/models/{model}", "retrieveModel", "Describe a model.", None, Model),
    Row("post", "/admin/keys", "createKey", "Make an API key; the answer holds it once.", KeySpec, CreatedKey),
    Row("get", "/admin/keys", "listKeys", "List API keys.", None, KeyList),
    Row("get", "/admin/keys/{key_id}", "getKey", "Describe an API key.", None, KeyView),
    Row("delete", "/admin/keys/{key_id}", "revokeKey", "End an API key.", None, KeyView),
    Row("get", "/admin/live", "live_figures", "What the dashboard shows.", None, None),
    Row("post", "/admin/canary/{route}", "steerCanary", "Promote, pause, resume, set or roll back.", None, None),
    Row("post", "/admin/reload", "reload", "Read the configuration again.", None, None),
)
_COMPONENTS = tuple(
    dict.fromkeys((*(cls for row in _ROWS for cls in (row.takes, row.gives) if cls is not None), ErrorAnswer, Readiness))
)
_STREAM = "With `stream: true`: server-sent events; those of the chat and completion APIs end with `data: [DONE]`."
_ANYTHING: Mapping[str, object] = {}


@cache
def openapi_document() -> bytes:
    """Return the document as JSON."""
    schemas, components = msgspec.json.schema_components(_COMPONENTS, ref_template="#/components/schemas/{name}")
    refs = dict(zip(_COMPONENTS, schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for row in _ROWS:
        paths.setdefault(row.path, {})[row.method] = _describe(row, refs)
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


def _describe(row: Row, refs: Mapping[type, Any]) -> dict[str, Any]:
    answer = _ANYTHING if row.gives is None else refs[row.gives]
    content: dict[str, Any] = {"application/json": {"schema": answer}}
    if row.streams:
        content["text/event-stream"] = {"schema": {"type": "string", "description": _STREAM}}
    described: dict[str, Any] = {
        "operationId": row.name,
        "summary": row.text,
        "responses": {
            "200": {"description": "The answer.", "content": content},
            "default": {"description": "An error.", "content": {"application/json": {"schema": refs[ErrorAnswer]}}},
        },
    }
    if row.method == "post" and not row.path.endswith(("/cancel", "/reload")):
        kind = "multipart/form-data" if row.form else "application/json"
        schema = _ANYTHING if row.takes is None else refs[row.takes]
        described["requestBody"] = {"required": True, "content": {kind: {"schema": schema}}}
    names = re.findall(r"{(\w+)}", row.path)
    if names:
        described["parameters"] = [
            {"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in names
        ]
    return described


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
