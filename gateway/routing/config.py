"""What can be set about routes, and about how failing deployments are treated. Plain data with ranges.

Whether the names in it exist is checked by `gateway.routing.check`, which knows the models.
"""

from itertools import pairwise
from typing import Annotated, Literal

from msgspec import Meta, Struct

PolicyName = Literal["weighted", "least_outstanding", "lowest_latency", "prefix_affinity", "session_affinity"]

Name = Annotated[str, Meta(min_length=1, max_length=128)]
Share = Annotated[float, Meta(ge=0, le=1)]
Seconds = Annotated[float, Meta(gt=0, le=3600)]
Pause = Annotated[float, Meta(ge=0, le=3600)]
Percent = Annotated[float, Meta(gt=0, le=100)]
Ratio = Annotated[float, Meta(ge=1, le=100)]


class Member(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One deployment of a route.

    `model` is the name of a configured model. `weight` is its share beside the others of its tier; 0 drains it. The lowest
    `tier` that has a usable deployment gets all requests. `tags` are what requests may ask for.
    """

    model: Name
    weight: Annotated[float, Meta(ge=0, le=1000)] = 1.0
    tier: Annotated[int, Meta(ge=0, le=9)] = 0
    tags: Annotated[tuple[Name, ...], Meta(max_length=32)] = ()


class CanaryConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A new deployment that takes a growing part of a route's conversations, and none as soon as it is clearly worse.

    `deployment` is the name of a configured model that is not a member of the route; requests for tags reach it only if it has
    all of them in its own `tags`. `steps` are percentages, each larger
    than the one before. A step is left for the next one after `min_samples` answers of the canary and `hold_s` seconds, if its
    error rate is at most `max_error_increase` above that of the other deployments and its p95 of the time to first token and
    of the time between tokens at most `max_ttft_ratio` and `max_itl_ratio` times theirs. The same limits, once exceeded
    beyond what chance explains, roll it back.
    """

    deployment: Name
    steps: Annotated[tuple[Percent, ...], Meta(min_length=1, max_length=20)] = (1.0, 5.0, 25.0, 50.0, 100.0)
    min_samples: Annotated[int, Meta(ge=20, le=4096)] = 200
    hold_s: Annotated[float, Meta(ge=0, le=604800)] = 300.0
    max_error_increase: Share = 0.01
    max_ttft_ratio: Ratio = 1.1
    max_itl_ratio: Ratio = 1.1
    tags: Annotated[tuple[Name, ...], Meta(max_length=32)] = ()

    def __post_init__(self) -> None:
        """Raises `ValueError` unless the steps rise."""
        if any(later <= earlier for earlier, later in pairwise(self.steps)):
            raise ValueError(f"steps must rise from one to the next (they are {', '.join(f'{step:g}' for step in self.steps)})")


class RouteConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One public model name and who answers for it.

    `fallbacks` are the public names that stand in, in this order, when no deployment can answer; `context_fallbacks` stand in
    when the prompt does not fit. `hedge_after_s` starts a second attempt elsewhere when nothing came for so long; 0 is off.
    With `private` the deployments are not served under their own names.
    """

    deployments: Annotated[tuple[Member, ...], Meta(min_length=1, max_length=256)]
    policy: PolicyName = "weighted"
    fallbacks: Annotated[tuple[Name, ...], Meta(max_length=16)] = ()
    context_fallbacks: Annotated[tuple[Name, ...], Meta(max_length=16)] = ()
    canary: CanaryConfig | None = None
    hedge_after_s: Pause = 0.0
    private: bool = False


class BreakerConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When a deployment that fails gets no more requests, and when it gets them again.

    It opens when, of at least `min_calls` calls in the last `window_s` seconds, more than the share `error_rate` failed, by
    more than one standard error; or after `consecutive_failures` in a row (0: never), which catches an outage where traffic is
    thin. It then rests for up to `open_s` seconds, twice as long each time it opens again, at most `max_open_s`. After that at
    most `half_open_probes` requests at a time are let through, until as many have passed: it closes when at most the share
    `close_below` of them failed. A probe without output after `probe_timeout_s` has failed.
    """

    error_rate: Annotated[float, Meta(gt=0, lt=1)] = 0.05
    window_s: Annotated[int, Meta(ge=1, le=600)] = 60
    min_calls: Annotated[int, Meta(ge=1, le=100_000)] = 100
    consecutive_failures: Annotated[int, Meta(ge=0, le=1000)] = 10
    open_s: Seconds = 5.0
    max_open_s: Seconds = 60.0
    half_open_probes: Annotated[int, Meta(ge=1, le=1000)] = 10
    close_below: Annotated[float, Meta(ge=0, lt=1)] = 0.025
    probe_timeout_s: Seconds = 30.0


class RetryConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How often a request is tried within one route, before its first output.

    `attempts` counts the first try too. A try at the same deployment waits a random time up to `base_delay_s`, doubled each
    time, at most `max_delay_s`. All retries and hedges together are at most the share `budget_ratio` of the requests (and at
    first as many as a hundred requests earn), so that an outage is not answered by twice the load.
    """

    attempts: Annotated[int, Meta(ge=1, le=10)] = 2
    base_delay_s: Pause = 0.05
    max_delay_s: Pause = 2.0
    budget_ratio: Share = 0.2


class HealthConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How deployments are asked whether they live: every `interval_s` seconds, from start to start.

    One that does not answer within `timeout_s` has failed the check. After `unhealthy_after` failed checks in a row it gets no
    requests, after `healthy_after` passed ones it does again. Recovery is noticed within `timeout_s` or `interval_s`, whichever
    is longer.
    """

    interval_s: Seconds = 2.0
    timeout_s: Seconds = 3.0
    unhealthy_after: Annotated[int, Meta(ge=1, le=100)] = 2
    healthy_after: Annotated[int, Meta(ge=1, le=100)] = 1
