"""POST /admin/canary/{route}: what an operator decides about the canary of a route. The name may contain slashes.

    promote   it gets everything                     of a canary that has not been rolled back
    pause     it climbs no further                   of a running one
    resume    it climbs on                           of one that is paused or was rolled back
    rollback  it gets nothing                        always
    set       it gets `percent`, and stays there     always

An action that asks for what is already so changes nothing. One that does not fit the state is refused with 409: a person who
decides on a page of two seconds ago must not hand everything to a canary that has been rolled back meanwhile.
"""

import logging
from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from litestar import Request, post
from litestar.params import FromPath
from litestar.types import ASGIApp
from msgspec import Meta, Struct

from backends.errors import ModelNotFound
from gateway.errors import InvalidRequest
from gateway.response import JsonReply
from gateway.routes.operator import ServicesDependency
from gateway.routes.reply import identity_of, read_body
from gateway.routing.canary import Canary, CanaryState, CanaryView
from gateway.translate.body import Body

logger = logging.getLogger(__name__)

_ACTIONS = ("promote", "pause", "resume", "rollback", "set")
_MAX_ECHO_CHARS = 128


class CanaryOrder(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body. `action` is one of those above; `percent` (0 to 100) belongs to `set`, and to nothing else."""

    action: str
    percent: Annotated[float, Meta(ge=0, le=100)] | None = None


class CanaryAnswer(CanaryView, frozen=True, kw_only=True):
    """The canary as it is after the action."""

    object: str = "canary"
    route: str


class UnknownRoute(InvalidRequest):
    """No route has that name."""

    status = 404
    code = "route_not_found"


class NoCanary(InvalidRequest):
    """The route is there, and has no canary."""

    status = 404
    code = "canary_not_found"


class WrongState(InvalidRequest):
    """The canary is in a state in which that makes no sense."""

    status = 409
    code = "canary_state"


_BODY = Body(CanaryOrder)

_POSSIBLE: Mapping[str, frozenset[CanaryState]] = {
    "promote": frozenset(("running", "paused", "promoted")),
    "pause": frozenset(("running", "paused")),
    "resume": frozenset(("running", "paused", "rolled_back")),
}
"""The states that an action is possible in, or has been done already; an action that is not here is always possible."""


@post("/admin/canary/{route:path}", status_code=200)
async def steer_canary(request: Request[Any, Any, Any], route: FromPath[str], services: ServicesDependency) -> ASGIApp:
    """Do what an operator decided, and show the canary."""
    order = await read_body(request, _BODY)
    name = route.removeprefix("/")
    try:
        canary = services.router.resolve(name).canary
    except ModelNotFound:
        raise UnknownRoute(f"No route has the name '{name[:_MAX_ECHO_CHARS]}'.", param="route") from None
    if canary is None:
        raise NoCanary(f"The route '{name}' has no canary.", param="route")
    steer(canary, order)
    identity = identity_of(request)
    who = identity.key_id or identity.name
    logger.info("route %s: %s of the canary %s, by %s", name, order.action, canary.config.deployment, who)
    answer = CanaryAnswer(route=name, **msgspec.structs.asdict(canary.view()))
    return JsonReply(msgspec.json.encode(answer))


def steer(canary: Canary, order: CanaryOrder) -> None:
    """Carry out an order.

    Raises:
        InvalidRequest: there is no such action; or `percent` is missing, or out of place.
        WrongState: not in this state.
    """
    if order.action not in _ACTIONS:
        text = f"Invalid 'action': '{order.action[:_MAX_ECHO_CHARS]}' is none of {', '.join(_ACTIONS)}."
        raise InvalidRequest(text, param="action", code="invalid_value")
    if order.action == "set" and order.percent is None:
        text = "Missing required parameter: 'percent' (0 to 100)."
        raise InvalidRequest(text, param="percent", code="missing_required_parameter")
    if order.action != "set" and order.percent is not None:
        text = f"'percent' belongs to the action 'set'; '{order.action}' takes none."
        raise InvalidRequest(text, param="percent", code="invalid_value")
    if canary.state not in _POSSIBLE.get(order.action, (canary.state,)):
        raise WrongState(_why_not(canary, order.action), param="action")
    _act(canary, order)


def _act(canary: Canary, order: CanaryOrder) -> None:
    match order.action:
        case "promote" if canary.state != "promoted":
            canary.promote()
        case "pause":
            canary.pause()
        case "resume":
            canary.resume()
        case "rollback" if canary.state != "rolled_back":
            canary.rollback()
        case "set" if order.percent is not None:
            canary.set_percent(order.percent)


def _why_not(canary: Canary, action: str) -> str:
    if canary.state == "rolled_back":
        why = f" ({canary.reason})" if canary.reason else ""
        return f"'{action}' is not possible: the canary has been rolled back{why}. First 'resume' it, or 'set' a percentage."
    return f"'{action}' is not possible: the canary has been promoted. 'set' a percentage, or 'rollback'."
