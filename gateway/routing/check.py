"""Finds the mistakes in routes that no single value shows: names that do not exist, and fallbacks that go round in circles."""

from collections.abc import Collection, Mapping

from gateway.routing.config import RouteConfig


def public_names(routes: Mapping[str, RouteConfig], models: Collection[str]) -> tuple[str, ...]:
    """The names that clients may ask for: all routes, then the models that have no route of their name and are not private."""
    private = {name for route in routes.values() if route.private for name in _members(route)}
    return (*routes, *(name for name in models if name not in routes and name not in private))


def check_routes(routes: Mapping[str, RouteConfig], models: Collection[str]) -> list[str]:
    """List every mistake, one line each. `models` are the names of the configured models."""
    public = public_names(routes, models)
    errors = []
    for name, route in routes.items():
        errors += _check_members(name, route, models)
        errors += _check_stand_ins(f"routes.{name}.fallbacks", name, route.fallbacks, public)
        errors += _check_stand_ins(f"routes.{name}.context_fallbacks", name, route.context_fallbacks, public)
    edges = {name: route.fallbacks for name, route in routes.items()}
    context_edges = {name: route.context_fallbacks for name, route in routes.items()}
    return errors + _check_circles("fallbacks", edges) + _check_circles("context_fallbacks", context_edges)


def _members(route: RouteConfig) -> list[str]:
    names = [member.model for member in route.deployments]
    return [*names, route.canary.deployment] if route.canary is not None else names


def _check_members(name: str, route: RouteConfig, models: Collection[str]) -> list[str]:
    members = [member.model for member in route.deployments]
    errors = [
        f"routes.{name}.deployments[{index}].model: there is no model '{model}'"
        for index, model in enumerate(members)
        if model not in models
    ]
    errors += [
        f"routes.{name}.deployments: the model '{model}' stands there {members.count(model)} times; give it one weight"
        for model in sorted(set(members))
        if members.count(model) > 1
    ]
    if not any(member.weight > 0 for member in route.deployments):
        errors.append(f"routes.{name}.deployments: every weight is 0, so nobody would answer")
    if route.canary is not None:
        canary = route.canary.deployment
        if canary not in models:
            errors.append(f"routes.{name}.canary.deployment: there is no model '{canary}'")
        elif canary in members:
            errors.append(f"routes.{name}.canary.deployment: '{canary}' is already one of the route's deployments")
    if route.hedge_after_s > 0 and len(_members(route)) < 2:
        errors.append(f"routes.{name}.hedge_after_s: a second attempt needs a second deployment, the route has one")
    return errors


def _check_stand_ins(where: str, name: str, names: Collection[str], public: Collection[str]) -> list[str]:
    errors = [f"{where}: nobody serves the model '{other}'" for other in names if other not in public]
    return errors + [f"{where}: '{name}' cannot stand in for itself" for other in names if other == name]


def _check_circles(field: str, edges: Mapping[str, tuple[str, ...]]) -> list[str]:
    """Walk from each route, and report a circle once: at the first of its routes in the order of the configuration."""
    errors, reported = [], set[str]()
    for start in edges:
        circle = _circle_through(start, edges)
        if circle and not reported.intersection(circle):
            reported.update(circle)
            errors.append(f"routes.{start}.{field}: they go round in a circle: {' > '.join((*circle, start))}")
    return errors


def _circle_through(start: str, edges: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    """The shortest way from a route back to itself, over at least one other; empty when there is none."""
    ways: list[tuple[str, ...]] = [(start,)]
    seen = {start}
    for way in ways:
        for name in edges.get(way[-1], ()):
            if name == start and len(way) > 1:
                return way
            if name not in seen:
                seen.add(name)
                ways.append((*way, name))
    return ()
