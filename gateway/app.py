"""The application: a list of routes inside a list of middleware. Data, no logic.

The middleware wraps litestar from outside, not through its own hook, because litestar runs that only where a route matched: a
404 needs a request id, CORS headers and a log line as much as an answer does.
"""

from collections.abc import Mapping
from typing import Any

from litestar import Litestar
from litestar.di import Provide
from litestar.types import ControllerRouterHandler

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
from gateway.routes.chat import create_chat_completion
from gateway.routes.completions import create_completion
from gateway.routes.embeddings import create_embedding
from gateway.routes.health import live, ready
from gateway.routes.metrics import metrics
from gateway.routes.models import list_models, retrieve_model
from gateway.routes.openapi import openapi
from gateway.routes.tokenize import detokenize, tokenize
from gateway.services import Services

ROUTES: tuple[ControllerRouterHandler, ...] = (
    create_chat_completion,
    create_completion,
    create_embedding,
    list_models,
    retrieve_model,
    tokenize,
    detokenize,
    live,
    ready,
    metrics,
    openapi,
)


def create_app(services: Services) -> ASGIApp:
    """Build the application around its services. The caller starts and closes the services; there is no lifespan."""
    console = read_console()
    server = services.settings.server
    # litestar types ASGI messages more narrowly than the ASGI specification does.
    app: Any = _create_litestar(services, console_route(console))
    middleware: tuple[tuple[Any, Mapping[str, object]], ...] = (
        (RequestId, {}),
        (AccessLog, {"telemetry": services.telemetry}),
        (Cors, {"origins": server.cors_origins}),
        (Auth, {"digests": services.settings.api_key_digests, "public_files": console.keys()}),
        (Drain, {"state": services.drain}),
        (Body, {"max_bytes": server.max_body_bytes, "timeout_s": server.body_timeout_s}),
        (Head, {}),
    )
    for cls, options in reversed(middleware):
        app = cls(app, **options)
    outermost: ASGIApp = app
    return outermost


def _create_litestar(services: Services, console: ControllerRouterHandler) -> Litestar:
    provided = {
        "services": services,
        "registry": services.registry,
        "telemetry": services.telemetry,
        "settings": services.settings.server,
    }
    return Litestar(
        route_handlers=[*ROUTES, console],
        dependencies={name: _provide(value) for name, value in provided.items()},
        exception_handlers=EXCEPTION_HANDLERS,
        openapi_config=None,
        logging_config=None,
        request_max_body_size=None,
        debug=False,
        pdb_on_exception=False,
    )


def _provide(value: object) -> Provide:
    return Provide(lambda: value, use_cache=True, sync_to_thread=False)
