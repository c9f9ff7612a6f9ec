"""Which names are served, which mistakes of a configuration are found, and what an operator sees."""

import msgspec
import pytest

from backends.errors import Failed, ModelNotFound, Overloaded
from gateway.routing.check import check_routes
from gateway.routing.config import CanaryConfig, Member, RouteConfig
from tests.gateway.routing.scene import Clock, break_open, call, canary_config, make_router, members, route


def test_models_are_served_under_their_names_unless_a_route_has_the_name_or_hides_them() -> None:
    routes = {"chat": route("a", "b"), "c": route("a"), "secret": route("d", private=True)}
    router = make_router(routes, "a", "b", "c", "d", clock=Clock())
    assert router.names() == ("chat", "c", "secret", "a", "b")
    assert [seat.deployment.name for seat in router.resolve("c").seats] == ["a"]
    with pytest.raises(ModelNotFound, match=r"The model 'd' does not exist here\. Served: chat, c, secret, a, b\."):
        router.resolve("d")


def test_a_private_canary_is_hidden_too() -> None:
    routes = {"chat": route("a", private=True, canary=canary_config())}
    assert make_router(routes, "a", "new", clock=Clock()).names() == ("chat",)


def test_a_message_lists_only_some_names() -> None:
    router = make_router({}, *(f"m{number}" for number in range(14)), clock=Clock())
    with pytest.raises(ModelNotFound, match="m9 and 4 more") as refused:
        router.resolve("x" * 5000)
    assert len(refused.value.message) < 400
    with pytest.raises(ModelNotFound, match="No model is served"):
        make_router({}, clock=Clock()).resolve("x")


def test_deployments_are_shared_by_all_routes() -> None:
    router = make_router({"one": route("a", "b"), "two": route("a")}, "a", "b", clock=Clock())
    break_open(router.deployments["a"], Failed("broke"))
    assert router.resolve("two").choose(call()) is None
    assert router.resolve("a").choose(call()) is None
    assert router.resolve("one").choose(call()).deployment.name == "b"


def test_lower_tiers_serve_first() -> None:
    tiers = RouteConfig(deployments=(Member(model="b", tier=1), Member(model="a"), Member(model="drained", weight=0)))
    router = make_router({"chat": tiers}, "a", "b", "drained", clock=Clock())
    chat = router.resolve("chat")
    assert {chat.choose(call()).deployment.name for _ in range(9)} == {"a"}
    router.deployments["a"].pause(10, 1000.0)
    assert {chat.choose(call()).deployment.name for _ in range(9)} == {"b"}


def test_tags_are_all_carried_by_who_is_chosen() -> None:
    tagged = RouteConfig(
        deployments=(Member(model="a", tags=("eu", "gpu")), Member(model="b", tags=("eu",)), Member(model="c"))
    )
    chat = make_router({"chat": tagged}, "a", "b", "c", clock=Clock()).resolve("chat")
    assert {chat.choose(call(tags=frozenset({"eu"}))).deployment.name for _ in range(9)} == {"a", "b"}
    assert {chat.choose(call(tags=frozenset({"eu", "gpu"}))).deployment.name for _ in range(9)} == {"a"}
    assert chat.choose(call(tags=frozenset({"us"}))) is None


def test_a_canary_without_the_tags_does_not_get_the_call() -> None:
    tagged = RouteConfig(deployments=(Member(model="a", tags=("eu",)),), canary=canary_config())
    router = make_router({"chat": tagged}, "a", "new", clock=Clock())
    router.resolve("chat").canary.promote()
    assert router.resolve("chat").choose(call()).deployment.name == "new"
    assert router.resolve("chat").choose(call(tags=frozenset({"eu"}))).deployment.name == "a"


def test_members_serve_when_the_canary_cannot() -> None:
    router = make_router({"chat": route("a", canary=canary_config())}, "a", "new", clock=Clock())
    chat, asked = router.resolve("chat"), call()
    chat.canary.promote()
    seat = chat.choose(asked)
    seat.begin(asked).failed(Failed("broke"))
    assert asked.trail.canary
    assert chat.choose(asked, [seat]).deployment.name == "a"
    break_open(router.deployments["new"], Failed("broke"))
    seat = chat.choose(asked)
    seat.begin(asked).succeeded()
    assert (seat.deployment.name, asked.trail.canary) == ("a", False)
    assert (chat.canary.baseline.attempts, chat.canary.trial.failures) == (1, 1)


@pytest.mark.parametrize(
    ("routes", "mistake"),
    [
        ({"chat": route("a", "x")}, "routes.chat.deployments[1].model: there is no model 'x'"),
        ({"chat": route("a", "a")}, "routes.chat.deployments: the model 'a' stands there 2 times; give it one weight"),
        ({"chat": RouteConfig(deployments=(Member(model="a", weight=0),))}, "routes.chat.deployments: every weight is 0"),
        ({"chat": route("a", fallbacks=("x",))}, "routes.chat.fallbacks: nobody serves the model 'x'"),
        ({"chat": route("a", context_fallbacks=("x",))}, "routes.chat.context_fallbacks: nobody serves the model 'x'"),
        ({"chat": route("a", fallbacks=("chat",))}, "routes.chat.fallbacks: 'chat' cannot stand in for itself"),
        ({"chat": route("a", canary=canary_config())}, "routes.chat.canary.deployment: there is no model 'new'"),
        (
            {"chat": route("a", canary=CanaryConfig(deployment="a"))},
            "routes.chat.canary.deployment: 'a' is already one of the route's deployments",
        ),
        ({"chat": route("a", hedge_after_s=1)}, "routes.chat.hedge_after_s: a second attempt needs a second deployment"),
        (
            {"one": route("a", fallbacks=("two",)), "two": route("b", fallbacks=("b", "one"))},
            "routes.one.fallbacks: they go round in a circle: one > two > one",
        ),
        (
            {"one": route("a", fallbacks=("b",)), "two": route("b", private=True)},
            "routes.one.fallbacks: nobody serves the model 'b'",
        ),
    ],
)
def test_mistakes_are_found_and_named(routes: dict[str, RouteConfig], mistake: str) -> None:
    errors = check_routes(routes, ("a", "b"))
    assert len(errors) == 1
    assert errors[0].startswith(mistake)
    with pytest.raises(ValueError, match="routes"):
        make_router(routes, "a", "b", clock=Clock())


def test_a_right_configuration_has_no_mistakes() -> None:
    routes = {
        "one": route("a", "b", fallbacks=("two", "three"), hedge_after_s=0.5),
        "two": route("b", fallbacks=("three",), canary=CanaryConfig(deployment="c")),
        "three": route("c", context_fallbacks=("one",)),
    }
    assert check_routes(routes, ("a", "b", "c")) == []


def test_settings_out_of_range_are_refused() -> None:
    for wrong in (
        {"deployments": []},
        {"deployments": [{"model": "a", "weight": -1}]},
        {"deployments": [{"model": "a"}], "x": 1},
    ):
        with pytest.raises(msgspec.ValidationError):
            msgspec.convert(wrong, RouteConfig)


def test_an_operator_sees_how_everything_stands() -> None:
    clock = Clock()
    router = make_router({"chat": RouteConfig(deployments=members("a"), canary=canary_config())}, "a", "new", clock=clock)
    running = router.deployments["a"].begin(call())
    clock.now += 0.5
    running.first_token()
    router.deployments["new"].begin(call()).failed(Overloaded("later", retry_after_s=30))
    break_open(router.deployments["new"], Failed("broke"))
    view = router.describe()
    a, new = view.deployments
    assert (a.breaker, a.outstanding, a.ttft_s, a.is_healthy) == ("closed", 1, 0.5, True)
    assert (new.breaker, new.error_rate, new.outstanding, new.paused_s) == ("open", 1.0, 0, 30)
    assert [route.name for route in view.routes] == ["chat", "a", "new"]
    assert view.routes[0].canary.percent == 1.0
    assert view.retry_tokens == 20
    assert b'"breaker":"open"' in msgspec.json.encode(view)
