"""`baton keys`: works on the store that the configuration names, whether a gateway runs or not."""

import argparse
import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from gateway.cli.settings import print_errors, settings_from
from gateway.config import Settings
from gateway.config_sources.reader import ConfigError
from gateway.errors import ApiError
from gateway.keys.build import build_key_store
from gateway.keys.manager import KeyManager
from gateway.keys.record import KeySpec
from gateway.keys.view import CreatedKey, KeyView
from gateway.store.config import database_path
from gateway.store.errors import StoreDown
from gateway.store.redis import RedisConfig, RedisStore
from gateway.store.sqlite import Database

_REDIS_TIMEOUT_S = 5.0


def run_keys(arguments: argparse.Namespace) -> int:
    """Do one thing with keys and print the outcome; the exit code is 1 when it could not be done."""
    action = {"create": _create, "list": _list, "revoke": _revoke}[arguments.action]
    try:
        return asyncio.run(_with_manager(settings_from(arguments), lambda manager: action(manager, arguments)))
    except ConfigError as error:
        print_errors(error)
    except StoreDown as error:
        print(f"baton: the keys cannot be reached: {error}", file=sys.stderr)
    except ApiError as error:
        print(f"baton: {error.message}", file=sys.stderr)
    except msgspec.ValidationError as error:
        print(f"baton: the key cannot be made like that: {error}", file=sys.stderr)
    return 1


async def _with_manager(settings: Settings, work: Callable[[KeyManager], Awaitable[int]]) -> int:
    database = Database(database_path(settings.store, os.environ))
    redis = _redis(settings) if settings.keys.store == "redis" else None
    try:
        return await work(KeyManager(build_key_store(settings.keys, database, redis)))
    finally:
        await database.close()
        if redis is not None:
            await redis.close()


def _redis(settings: Settings) -> RedisStore:
    try:
        return RedisStore(RedisConfig(url=settings.store.redis_url, timeout_s=_REDIS_TIMEOUT_S))
    except ValueError as error:
        raise ConfigError([f"store.redis_url: {error}"]) from None
    except ModuleNotFoundError as error:
        raise ConfigError([f"keys.store: Redis needs the package {error.name}, which is not installed"]) from None


async def _create(manager: KeyManager, arguments: argparse.Namespace) -> int:
    created = await manager.create(_spec(arguments))
    if arguments.json:
        _print_json(created)
    else:
        _print_created(created)
    return 0


def _spec(arguments: argparse.Namespace) -> KeySpec:
    content = {
        "name": arguments.name,
        "tenant": arguments.tenant,
        "models": arguments.models,
        "priority": arguments.priority,
        "weight": arguments.weight,
        "is_admin": arguments.admin,
        "expires_at": arguments.expires,
        "allowance": {
            "requests_per_minute": arguments.rpm,
            "tokens_per_minute": arguments.tpm,
            "concurrency": arguments.concurrency,
            "budget_usd": arguments.budget,
            "budget_period": arguments.budget_period,
        },
    }
    return msgspec.convert(content, KeySpec)


async def _list(manager: KeyManager, arguments: argparse.Namespace) -> int:
    keys = await manager.list()
    if arguments.json:
        _print_json(keys)
        return 0
    head = ("ID", "KEY", "NAME", "TENANT", "MODELS", "LIMITS", "PRIORITY", "STATE", "EXPIRES", "LAST USED")
    _print_table(head, [_row(key) for key in keys.data])
    return 0


async def _revoke(manager: KeyManager, arguments: argparse.Namespace) -> int:
    revoked = await manager.revoke(arguments.key_id)
    if arguments.json:
        _print_json(revoked)
    else:
        print(f"{revoked.id} ({revoked.name}) is revoked.")
    return 0


def _print_created(created: CreatedKey) -> None:
    # Only the key goes to stdout, so that a script can take it.
    print(created.key)
    until = f" until {_moment(created.expires_at)}" if created.expires_at else ""
    print(f"{created.id} ({created.name}) is valid{until}. The key is shown this once: keep it safe.", file=sys.stderr)


def _row(key: KeyView) -> tuple[str, ...]:
    models = "all" if key.models is None else ",".join(key.models)
    state = f"{key.state}, admin" if key.is_admin else key.state
    times = (_moment(key.expires_at), _moment(key.last_used_at))
    name = "".join(character if character.isprintable() else "?" for character in key.name)
    return (key.id, f"{key.prefix}…", name, key.tenant, models, _limits(key), key.priority, state, *times)


def _limits(key: KeyView) -> str:
    allowance = key.allowance
    numbers = (
        (allowance.requests_per_minute, "rpm"),
        (allowance.tokens_per_minute, "tpm"),
        (allowance.concurrency, "at a time"),
    )
    limits = [f"{number} {unit}" for number, unit in numbers if number]
    if allowance.budget_usd:
        limits.append(f"${allowance.budget_usd:g} per {allowance.budget_period}")
    return ", ".join(limits).replace("per total", "in total") or "none"


def _moment(seconds: int | None) -> str:
    return "" if seconds is None else datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M")


def _print_json(content: Any) -> None:
    print(msgspec.json.format(msgspec.json.encode(content)).decode())


def _print_table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> None:
    widths = [max(len(row[column]) for row in (head, *rows)) for column in range(len(head))]
    for row in (head, *rows):
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
