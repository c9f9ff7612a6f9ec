"""Reading the configuration again while the gateway runs: what would change, as plain data, and the way to get there.

    read and check > compare > build and start what is new > switch > close what nobody uses any more

A configuration with a mistake changes nothing. What only a restart can change stays as it is, and is named.
"""

import asyncio
import logging
import os
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol

from msgspec import Struct, structs

from gateway.config import ModelConfig, Settings
from gateway.config_sources.reader import ConfigError
from gateway.errors import ApiError, InvalidRequest

logger = logging.getLogger(__name__)

MAX_MISTAKES = 100

LIVE = frozenset(
    {"models", "routes", "queue", "queues", "breaker", "retries", "health", "prices", "api_key_digests", "admin_key_digests"}
)
"""The fields of `Settings` that a reload applies."""

LIVE_SERVER = frozenset({"drain_timeout_s", "api_key_file", "allow_unauthenticated"})
"""The same within `[server]`."""

_KEYS = {"api_key_digests": "api keys", "admin_key_digests": "admin keys"}
_FILES = ("path", "api_key_file", "ca_file", "client_cert_file", "client_key_file")

Stamp = tuple[tuple[str, int, int, int], ...]


class ReloadBusy(InvalidRequest):
    """A reload cannot begin now."""

    status = 409
    code = "reload_not_possible"


class BadConfiguration(InvalidRequest):
    """The configuration has mistakes, or what is new in it does not start; everything stays as it was."""

    code = "configuration_invalid"

    def __init__(self, mistakes: Collection[str]) -> None:
        super().__init__(f"The configuration was not applied, it has {len(mistakes)} mistakes: " + "; ".join(mistakes))
        self.mistakes = tuple(mistakes)[:MAX_MISTAKES]


class Plan(Struct, frozen=True, kw_only=True):
    """What a reload does.

    Attributes:
        settings: what is in force afterwards.
        added, changed, removed: names of models.
        sections: other parts that change, such as `routes`.
        restart: what differs but only changes with a restart, such as `server.port`.
        stamps: of the files of each model.
    """

    settings: Settings
    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    sections: tuple[str, ...] = ()
    restart: tuple[str, ...] = ()
    stamps: Mapping[str, Stamp] = {}

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to do."""
        return not (self.added or self.changed or self.removed or self.sections)

    def report(self) -> dict[str, Any]:
        """For people and programs: all of it but the settings."""
        return {name: getattr(self, name) for name in ("added", "changed", "removed", "sections", "restart")}


def plan_reload(
    current: Settings, wanted: Settings, stale: Collection[str] = (), stamps: Mapping[str, Stamp] = MappingProxyType({})
) -> Plan:
    """Compare two configurations.

    Args:
        stale: models to be built anew although their configuration is the same.
        stamps: of `wanted`; passed on.
    """
    models, before = wanted.models, current.models
    live = {name: getattr(wanted, name) for name in LIVE}
    server = structs.replace(current.server, **{name: getattr(wanted.server, name) for name in LIVE_SERVER})
    settings = structs.replace(current, server=server, **live)
    sections = [
        _KEYS.get(field, field)
        for field in Settings.__struct_fields__
        if field != "models" and getattr(settings, field) != getattr(current, field)
    ]
    return Plan(
        settings=settings,
        added=tuple(name for name in models if name not in before),
        changed=tuple(name for name in models if name in before and (models[name] != before[name] or name in stale)),
        removed=tuple(name for name in before if name not in models),
        sections=tuple(sections),
        restart=_restart(settings, wanted),
        stamps=stamps,
    )


def file_stamps(models: Mapping[str, ModelConfig]) -> dict[str, Stamp]:
    """Tell the files that each model is read from apart from later ones under the same names: inode, size and time."""
    stamps = {}
    for name, model in models.items():
        named = [Path(path) for field in _FILES if (path := getattr(model, field, ""))]
        paths = [path for one in named for path in (sorted(one.iterdir()) if one.is_dir() else (one,))]
        stamps[name] = tuple((str(path), *_stamp(path)) for path in paths)
    return stamps


class Reloadable(Protocol):
    """What a reload changes."""

    @property
    def settings(self) -> Settings:
        """What is in force."""
        ...

    async def stale(self, stamps: Mapping[str, Stamp]) -> Collection[str]:
        """Models that are not as their files are now, or that have failed."""
        ...

    async def apply(self, plan: Plan) -> None:
        """Do it, all or nothing.

        Raises:
            ConfigError: a model cannot be built.
            BadConfiguration: a model does not start.
            ReloadBusy: too much of earlier reloads still runs.
        """
        ...


class Reloader:
    """Reads and applies, one at a time.

    Args:
        load: reads and checks the configuration; raises ConfigError. Called in a thread.
        on_applied: told after a reload that changed something.
    """

    def __init__(self, target: Reloadable, load: Callable[[], Settings], on_applied: Callable[[], None] = lambda: None) -> None:
        self._target = target
        self._load = load
        self._on_applied = on_applied
        self._turn = asyncio.Lock()

    async def reload(self, *, wait: bool = False) -> Plan:
        """Read the configuration and apply what changed.

        Args:
            wait: until a reload that runs has ended, instead of giving up.

        Raises:
            BadConfiguration: it has mistakes; they have been logged.
            ReloadBusy: another reload runs, or too much of earlier ones.
        """
        if self._turn.locked() and not wait:
            raise ReloadBusy("A reload is under way. Try again when it has ended.", headers={"retry-after": "2"})
        async with self._turn:
            try:
                return await self._reload()
            except (ConfigError, BadConfiguration) as error:
                mistakes = error.errors if isinstance(error, ConfigError) else error.mistakes
                for line in mistakes[:MAX_MISTAKES]:
                    logger.error("the configuration was not reloaded: %s", line)
                raise BadConfiguration(mistakes) from None

    async def reload_or_log(self) -> None:
        """The same for whoever cannot be told how it ended. Raises nothing but cancellation."""
        try:
            await self.reload(wait=True)
        except BadConfiguration:
            return
        except ApiError as error:
            logger.error("the configuration was not reloaded: %s", error.message)
        except Exception:
            logger.exception("the configuration was not reloaded")

    async def _reload(self) -> Plan:
        wanted, stamps = await asyncio.to_thread(self._read)
        plan = plan_reload(self._target.settings, wanted, await self._target.stale(stamps), stamps)
        for name in plan.restart:
            logger.warning("%s has changed, which takes effect with the next start", name)
        if plan.is_empty:
            logger.info("the configuration was reloaded: nothing to change")
            return plan
        await self._target.apply(plan)
        what = (f"{name} {', '.join(value)}" for name, value in plan.report().items() if value and name != "restart")
        logger.info("the configuration was reloaded: %s", "; ".join(what))
        self._on_applied()
        return plan

    def _read(self) -> tuple[Settings, dict[str, Stamp]]:
        settings = self._load()
        return settings, file_stamps(settings.models)


def _restart(settings: Settings, wanted: Settings) -> tuple[str, ...]:
    server = [
        f"server.{field}"
        for field in settings.server.__struct_fields__
        if getattr(settings.server, field) != getattr(wanted.server, field)
    ]
    sections = [
        field
        for field in Settings.__struct_fields__
        if field != "server" and getattr(settings, field) != getattr(wanted, field)
    ]
    return (*server, *sections)


def _stamp(path: Path) -> tuple[int, int, int]:
    try:
        found = os.stat(path)
    except OSError:
        return (0, 0, 0)
    return (found.st_ino, found.st_size, found.st_mtime_ns)
