"""POST /admin/reload: read the configuration again, in every worker. Only admins get here (`gateway.middleware.auth`)."""

import msgspec
from litestar import Response, post

from gateway.errors import error_body
from gateway.reload import BadConfiguration
from gateway.routes.operator import OperationDependency


@post("/admin/reload", status_code=200)
async def reload(operation: OperationDependency) -> Response[bytes]:
    """Say what changed, and what waits for a restart; a bad configuration is answered with all its mistakes."""
    status, answer = 200, {}
    try:
        answer = await operation.reload()
    except BadConfiguration as error:
        answer = {**msgspec.json.decode(error_body(error)), "mistakes": error.mistakes}
        status = error.status
    return Response(msgspec.json.encode(answer), status_code=status, media_type="application/json")
