"""The OpenAPI document."""

from litestar import Response, get

from gateway.openapi import openapi_document


@get("/openapi.json")
async def openapi() -> Response[bytes]:
    """Describe the API to programs."""
    return Response(openapi_document(), media_type="application/json")
