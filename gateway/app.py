"""The application: a list of routes inside a list of middleware. Data, no logic.

The middleware wraps litestar from outside, not through its own hook, because litestar runs that only where a route matched: a
404 needs a request id, CORS headers and a log line as much as an answer does.
"""

from collections.abc import Mapping
from typing import Any

from litestar import Litestar
from litestar.di import Provide
from litestar.types import ControllerRouterHandler

from gateway.batches.asgi_line import AsgiLine
from gateway.console import console_route, read_console
from gateway.errors import EXCEPTION_HANDLERS
from gateway.middleware.access_log import AccessLog
from gateway.middleware.asgi import ASGIApp
from gateway.middleware.auth import Auth
from gateway.middleware.body import Body
from gateway.middleware.cors import Cors
from gateway.middleware.drain import Drain
from gateway.middleware.head import Head
from gateway.middleware.request_id import RequestId
from gateway.operation import Operation
from gateway.routes.admin_canary import steer_canary
from gateway.routes.admin_keys import create_key, list_keys, retrieve_key, revoke_key
from gateway.routes.admin_live import live_figures
from gateway.routes.admin_reload import reload
from gateway.routes.batches import batch_routes
from gateway.routes.chat import CHAT_COMPLETIONS
from gateway.routes.completions import LEGACY_COMPLETIONS
from gateway.routes.conversations import conversation_routes
from gateway.routes.door import door
from gateway.routes.embeddings import EMBEDDINGS_ENDPOINT
from gateway.routes.files import file_routes
from gateway.routes.health import live, ready
from gateway.routes.memory import Memories
from gateway.routes.messages import MESSAGES_ENDPOINT, count_message_tokens
from gateway.routes.metrics import metrics
from gateway.routes.models import list_models, retrieve_model
from gateway.routes.openapi import openapi
from gateway.routes.rerank import RERANK_ENDPOINT, SHORT_RERANK_ENDPOINT
from gateway.routes.responses import responses_routes
from gateway.routes.responses_state import ResponsesState
from gateway.routes.tokenize import detokenize, tokenize
from gateway.services import Services

ENDPOINTS = (
    CHAT_COMPLETIONS,
    LEGACY_COMPLETIONS,
    EMBEDDINGS_ENDPOINT,
    MESSAGES_ENDPOINT,
    RERANK_ENDPOINT,
    SHORT_RERANK_ENDPOINT,
)

ROUTES: tuple[ControllerRouterHandler, ...] = (
    count_message_tokens,
    list_models,
    retrieve_model,
    tokenize,
    detokenize,
    live,
    ready,
    metrics,
    openapi,
    create_key,
    list_keys,
    retrieve_key,
    revoke_key,
    live_figures,
    steer_canary,
    reload,
)


def create_app(services: Services, operation: Operation | None = None) -> ASGIApp:
    """Build the application around its services. The caller starts and closes the services; there is no lifespan.

    Args:
        operation: what operators may ask for; by default without a configuration to reload and without other workers.
    """
    console = read_console()
    server = services.settings.server
    # litestar types ASGI messages more narrowly than the ASGI specification does.
    app: Any = create_litestar(services, operation or Operation(services), console_route(console))
    middleware: tuple[tuple[Any, Mapping[str, object]], ...] = (
        (RequestId, {}),
        (AccessLog, {"telemetry": services.telemetry}),
        (Cors, {"origins": server.cors_origins}),
        (Auth, {"keys": services.stores.ring, "public_files": console.keys()}),
        (Drain, {"state": services.drain}),
        (Body, {"max_bytes": server.max_body_bytes, "timeout_s": server.body_timeout_s}),
        (Head, {}),
    )
    logged: Any = RequestId(AccessLog(app, services.telemetry))
    services.run_line = AsgiLine(logged)
    for cls, options in reversed(middleware):
        app = cls(app, **options)
    outermost: ASGIApp = app
    return outermost


def create_litestar(services: Services, operation: Operation, console: ControllerRouterHandler) -> Litestar:
    """The routes and what their handlers ask for, without the middleware around them."""
    provided = {
        "services": services,
        "operation": operation,
        "key_manager": services.stores.keys,
        "usage_today": services.telemetry.usage,
    }
    ping_interval_s = services.settings.server.ping_interval_s
    memories = Memories(services.stores.answers, services.stores.chats)
    doors = [door(endpoint, lambda: services.dispatch, memories, ping_interval_s) for endpoint in ENDPOINTS]
    state = ResponsesState(services.stores.responses, services.stores.conversations)
    stateful = (
        *responses_routes(lambda: services.dispatch, state, ping_interval_s),
        *conversation_routes(state),
        *file_routes(services.batches.files),
        *batch_routes(services.batches.store),
    )
    return Litestar(
        route_handlers=[*ROUTES, *doors, *stateful, console],
        dependencies={name: _provide(value) for name, value in provided.items()}
        | {"catalog": Provide(lambda: services.catalog, sync_to_thread=False)},
        exception_handlers=EXCEPTION_HANDLERS,
        openapi_config=None,
        logging_config=None,
        request_max_body_size=None,
        debug=False,
        pdb_on_exception=False,
    )


def _provide(value: object) -> Provide:
    return Provide(lambda: value, use_cache=True, sync_to_thread=False)
