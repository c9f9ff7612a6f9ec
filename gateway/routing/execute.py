"""Gets a first output for a call: chooses a deployment, retries elsewhere, falls back to other models.

All of it happens before the first output; what was sent to a client is never sent again. In the usual case, one deployment
that works, this costs a few microseconds and no task.
"""

from collections import deque

from backends.errors import BackendError, TimedOut
from gateway.call import Call
from gateway.routing.deployment import Attempt
from gateway.routing.hedge import open_hedged
from gateway.routing.opening import Open, T, open_at
from gateway.routing.retry import delay_s
from gateway.routing.route import Route
from gateway.routing.router import Router
from gateway.routing.seat import Seat


async def execute(router: Router, call: Call, open: Open[T]) -> tuple[T, Attempt]:
    """Open the call somewhere, and return what was opened with the attempt, which the caller must end.

    Args:
        open: asks one deployment; see `Open`. With hedging it runs in a task of its own.

    Raises:
        ModelNotFound: nobody serves `call.model`.
        TimedOut: `call.deadline` has passed before anything was tried.
        BackendError: of the last deployment that was tried, or why there was none to try. Any other exception of `open` passes
            unchanged and counts against nobody.
    """
    route = router.resolve(call.model)
    if _is_late(router, call):
        raise TimedOut("The request waited longer than its deadline allows.", code="deadline_exceeded")
    router.budget.earn()
    try:
        return await _serve(router, route, call, open)
    except BackendError as error:
        stand_ins = route.stand_ins(error)
        if not stand_ins:
            raise
        first_error = error
    return await _fall_back(router, call, open, stand_ins, first_error)


async def _fall_back(
    router: Router, call: Call, open: Open[T], names: tuple[str, ...], error: BackendError
) -> tuple[T, Attempt]:
    """Try other models in order; those that stand in for a stand-in come right after it. Each is tried once."""
    waiting, seen = deque(names), {call.model}
    while waiting and not _is_late(router, call):
        name = waiting.popleft()
        if name in seen:
            continue
        seen.add(name)
        route = router.resolve(name)
        call.trail.fallback, call.trail.reason = name, error.code or ""
        try:
            return await _serve(router, route, call, open)
        except BackendError as latest:
            error = latest
            waiting.extendleft(reversed(route.stand_ins(error)))
    call.trail.fallback = call.trail.reason = ""
    raise error


async def _serve(router: Router, route: Route, call: Call, open: Open[T]) -> tuple[T, Attempt]:
    """Try the deployments of one route."""
    seat = route.choose(call)
    if seat is None:
        raise route.refusal(call)
    if not route.hedge_after_s:
        try:
            return await open_at(seat, call, open)
        except BackendError as error:
            first_error, tried = error, [seat]
    else:
        tried = [seat]
        try:
            return await open_hedged(router, route, seat, call, open, tried)
        except BackendError as error:
            first_error = error
    return await _retry(router, route, call, open, tried, first_error)


async def _retry(
    router: Router, route: Route, call: Call, open: Open[T], tried: list[Seat], error: BackendError
) -> tuple[T, Attempt]:
    """Try again after `error`, as often as the error, the attempts, the deadline and the budget allow."""
    for retry in range(1, router.retry.attempts):
        seat = await _next_seat(router, route, call, tried, error, retry) if error.retryable else None
        if seat is None:
            break
        tried.append(seat)
        try:
            return await open_at(seat, call, open)
        except BackendError as latest:
            error = latest
    raise error


async def _next_seat(
    router: Router, route: Route, call: Call, tried: list[Seat], error: BackendError, retry: int
) -> Seat | None:
    """Another deployment at once, else the same ones again after a pause; None when the error must stand."""
    if _is_late(router, call):
        return None
    seat = route.choose(call, tried)
    if seat is None:
        pause_s = delay_s(error, retry, router.retry, router.random)
        if pause_s is None or _is_late(router, call, pause_s):
            return None
        await router.sleep(pause_s)
        tried.clear()
        seat = route.choose(call)
    return seat if seat is not None and router.budget.spend() else None


def _is_late(router: Router, call: Call, after_s: float = 0.0) -> bool:
    return call.deadline is not None and router.clock() + after_s >= call.deadline
