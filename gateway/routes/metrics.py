"""What Prometheus scrapes."""

from typing import Any

from litestar import Request, Response, get

from gateway.routes.operator import ServicesDependency


@get("/metrics")
async def metrics(request: Request[Any, Any, Any], services: ServicesDependency) -> Response[bytes]:
    """Render all metrics, in the text or the OpenMetrics format, whichever the scraper asks for."""
    body, content_type = services.telemetry.exposition(await services.healths(), request.headers.get("accept", ""))
    return Response(body, headers={"content-type": content_type})
