"""The servers behind remote models: do they answer, and how soon? Do they take our key, and know the model?"""

import resource
from concurrent.futures import ThreadPoolExecutor
from time import perf_counter

import httpx
import msgspec
from msgspec import Struct

from backends.remote.config import RemoteConfig
from backends.remote.credentials import read_api_key, tls_context
from gateway.cli.checks.finding import Finding
from gateway.config import Settings

_TIMEOUT_S = 5.0
_AT_ONCE = 8
_MAX_ANSWER_BYTES = 4 << 20
_SHOWN_MODELS = 5
_OTHER_FILES = 256
"""Beside connections: logs, databases, pipes, and what Python opens for a moment."""


class _Listed(Struct):
    id: str


class _ModelList(Struct):
    data: list[_Listed]


def check_upstreams(settings: Settings) -> list[Finding]:
    """Ask each server for its list of models, as the gateway's own health checks do."""
    remote = {name: model for name, model in settings.models.items() if isinstance(model, RemoteConfig)}
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        return list(threads.map(_check, remote, remote.values()))


def check_connections(settings: Settings) -> list[Finding]:
    """May the process open as many files as the connections need that the configuration allows?"""
    most = sum(model.max_connections for model in settings.models.values() if isinstance(model, RemoteConfig))
    if not most:
        return []
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = 2 * most + _OTHER_FILES
    text = f"up to {most} upstream ones, and as many of clients, need {needed} open files"
    if soft != resource.RLIM_INFINITY and soft < needed:
        fix = f"ulimit -n {needed} (it is {soft}), or a smaller max_connections for the models"
        return [Finding("warn", "connections", text, fix)]
    return [Finding("ok", "connections", text)]


def _check(name: str, config: RemoteConfig) -> Finding:
    subject, url = f"upstream {name}", config.base_url
    try:
        headers = dict(config.headers)
        if key := read_api_key(config):
            headers["authorization"] = f"Bearer {key}"
        with httpx.Client(verify=tls_context(config), timeout=_TIMEOUT_S, trust_env=False) as client:
            begun = perf_counter()
            status, body = _fetch(client, f"{url}/models", headers)
            took_ms = (perf_counter() - begun) * 1000
    except ValueError as error:
        return Finding("fail", subject, str(error), "set the key, or correct the path")
    except httpx.TimeoutException:
        return Finding("fail", subject, f"{url} does not answer within {_TIMEOUT_S:g} s", "is the server up, and the way open?")
    except httpx.TransportError as error:
        reason = str(error) or type(error).__name__
        return Finding("fail", subject, f"{url} cannot be reached: {reason}", _advice(reason))
    return _judge(subject, f"{url} answers in {took_ms:.0f} ms", status, body, config.model or name)


def _advice(reason: str) -> str:
    if "CERTIFICATE" in reason:
        return "name the authority in ca_file, or the server as its certificate does"
    return "does the server speak TLS?" if "SSL" in reason else "check the url, and that the server runs"


def _fetch(client: httpx.Client, url: str, headers: dict[str, str]) -> tuple[int, bytes]:
    """The status and the beginning of the body, as far as it comes in time."""
    late = perf_counter() + _TIMEOUT_S
    with client.stream("GET", url, headers=headers) as response:
        body = b""
        for piece in response.iter_bytes():
            body += piece
            if len(body) > _MAX_ANSWER_BYTES or perf_counter() > late:
                break
        return response.status_code, body


def _judge(subject: str, text: str, status: int, body: bytes, model: str) -> Finding:
    if status in (401, 403):
        return Finding("fail", subject, f"{text}, but refuses the key ({status})", "check api_key_env or api_key_file")
    if status in (404, 405):
        return Finding("ok", subject, f"{text}; it has no list of models")
    if status != 200:
        return Finding("warn", subject, f"{text}, with status {status}", "look at the server's own log")
    try:
        listed = [entry.id for entry in msgspec.json.decode(body, type=_ModelList).data]
    except (msgspec.MsgspecError, RecursionError):
        fix = "check the url: an OpenAI-compatible API usually ends with /v1"
        return Finding("warn", subject, f"{text}, but not with a list of models", fix)
    if model not in listed and len(listed) != 1:
        shown = ", ".join(listed[:_SHOWN_MODELS]) or "none"
        fix = "set model to one of those that it lists, unless the server loads models when they are asked for"
        return Finding("warn", subject, f"{text}, but does not list {model} (it lists {shown})", fix)
    return Finding("ok", subject, text)
