"""What Prometheus scrapes."""

from typing import Any

from litestar import Request, Response, get

from gateway.routes.operator import OperationDependency


@get("/metrics")
async def metrics(request: Request[Any, Any, Any], operation: OperationDependency) -> Response[bytes]:
    """Render the metrics of all workers, in the text or the OpenMetrics format, whichever the scraper asks for."""
    body, content_type = await operation.metrics(request.headers.get("accept", ""))
    return Response(body, headers={"content-type": content_type})
