"""Turns `Backend.health()` into metrics: the common figures, and whatever else an engine counts.

A custom collector, because the figures live in the engines: they are asked at scrape time and never mirrored. It knows no
engine; names of engine-specific figures come from the engine, and only what is a legal metric name is exported.
"""

import re
from collections.abc import Iterator, Mapping
from typing import get_args

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from backends.types import Health, ModelState
from gateway.telemetry.figures import PREFIX

_STATES: tuple[str, ...] = get_args(ModelState)
_FIGURE_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]{0,99}")


class EngineCollector(Collector):
    """Exports the last healths it was given, by model."""

    def __init__(self) -> None:
        self.healths: Mapping[str, Health] = {}

    def collect(self) -> Iterator[Metric]:
        """Yield the families of all backends."""
        state = GaugeMetricFamily(PREFIX + "engine_state", "1 for the state that the model is in.", labels=("model", "state"))
        for model, health in self.healths.items():
            for name in _STATES:
                state.add_metric((model, name), float(name == health.state))
        yield state
        for name in ("running", "waiting", "slots"):
            yield self._common(name)
        yield from self._specific()

    def _common(self, name: str) -> Metric:
        texts = {
            "running": "Requests that hold a slot.",
            "waiting": "Requests that wait for a slot.",
            "slots": "Requests that can run at once.",
        }
        family = GaugeMetricFamily(f"{PREFIX}engine_{name}", texts[name], labels=("model",))
        for model, health in self.healths.items():
            family.add_metric((model,), float(getattr(health, name)))
        return family

    def _specific(self) -> Iterator[Metric]:
        taken = {"state", "running", "waiting", "slots"}
        families: dict[str, GaugeMetricFamily | CounterMetricFamily] = {}
        for model, health in self.healths.items():
            for kind, figures in ((GaugeMetricFamily, health.gauges), (CounterMetricFamily, health.counters)):
                for name, value in figures.items():
                    base = name.removesuffix("_total") if kind is CounterMetricFamily else name
                    if base in taken or not _FIGURE_NAME.fullmatch(base):
                        continue
                    family = families.get(base)
                    if family is None:
                        text = f"Reported by the engine: {base.replace('_', ' ')}."
                        family = families[base] = kind(f"{PREFIX}engine_{base}", text, labels=("model",))
                    if isinstance(family, kind):
                        family.add_metric((model,), float(value))
        yield from families.values()
