"""What `baton doctor` finds around a gateway: upstream servers, stores, limits."""

import asyncio
import socket
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from backends.fake import FakeModel
from backends.remote.config import RemoteConfig
from gateway.cli.checks import stores, upstreams
from gateway.cli.checks.finding import Finding
from gateway.cli.checks.stores import check_database, check_redis
from gateway.cli.checks.upstreams import check_connections, check_upstreams
from gateway.config import ServerConfig, Settings
from gateway.store.config import MEMORY, StoreConfig
from tests.redis_server import RedisServer, find_server
from tests.upstream import ScriptedUpstream, answer, json_answer, scripted

MODELS = {"object": "list", "data": [{"id": "big", "object": "model"}, {"id": "small", "object": "model"}]}


@contextmanager
def upstream(*script) -> Iterator[ScriptedUpstream]:
    """A scripted server in a thread of its own, because the check blocks."""
    started, loop, box = threading.Event(), asyncio.new_event_loop(), []

    async def serve() -> None:
        async with scripted(*script) as server:
            box.extend((server, asyncio.Event()))
            started.set()
            await box[1].wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    started.wait(10)
    try:
        yield box[0]
    finally:
        loop.call_soon_threadsafe(box[1].set)
        thread.join(10)
        loop.close()


def settings(**sections) -> Settings:
    return Settings(server=ServerConfig(), models=sections.pop("models", {"fake": FakeModel()}), **sections)


def check(url: str, **fields) -> Finding:
    (finding,) = check_upstreams(settings(models={"m": RemoteConfig(url=url, **fields), "fake": FakeModel()}))
    assert finding.subject == "upstream m"
    return finding


def test_upstream_that_lists_the_model_is_good_and_was_shown_the_key(monkeypatch):
    monkeypatch.setenv("UPSTREAM_KEY", "secret-key")
    with upstream(json_answer(MODELS)) as server:
        finding = check(f"{server.url}/v1", model="small", api_key_env="UPSTREAM_KEY", headers={"x-team": "a"})
        (request,) = server.requests
    assert finding.level == "ok"
    assert finding.text.startswith(f"{server.url}/v1 answers in ")
    assert request.path == "/v1/models"
    assert (request.headers["authorization"], request.headers["x-team"]) == ("Bearer secret-key", "a")


@pytest.mark.parametrize(
    ("script", "level", "says"),
    [
        (json_answer(MODELS), "warn", "does not list m (it lists big, small)"),
        (json_answer({"data": [{"id": "only"}]}), "ok", "answers in"),
        (json_answer({"error": "no"}, 401), "fail", "refuses the key (401)"),
        (json_answer({"error": "no"}, 403), "fail", "refuses the key (403)"),
        (json_answer({"error": "no"}, 404), "ok", "no list of models"),
        (json_answer({"error": "no"}, 500), "warn", "with status 500"),
        (answer(200, b"<html>hello</html>", kind="text/html"), "warn", "not with a list of models"),
        (answer(200, b"[" * 100_000), "warn", "not with a list of models"),
    ],
)
def test_answer_of_an_upstream_is_judged(script, level, says):
    with upstream(script) as server:
        finding = check(server.url)
    assert (finding.level, says in finding.text) == (level, True), finding
    assert finding.fix if level != "ok" else not finding.fix


def test_upstream_that_is_not_there_or_has_no_key_fails(monkeypatch):
    monkeypatch.delenv("NO_SUCH_KEY", raising=False)
    assert "cannot be reached: " in check("http://127.0.0.1:9").text
    assert "NO_SUCH_KEY holds no API key" in check("http://127.0.0.1:9", api_key_env="NO_SUCH_KEY").text


def test_upstream_that_is_silent_fails_soon(monkeypatch):
    monkeypatch.setattr(upstreams, "_TIMEOUT_S", 0.2)
    with upstream([]) as server:
        assert "does not answer within 0.2 s" in check(server.url).text


def test_upstream_that_speaks_no_tls_is_told_apart():
    with socket.create_server(("127.0.0.1", 0)) as server:

        def refuse() -> None:
            connection, _ = server.accept()
            with connection:
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                connection.recv(4096)

        thread = threading.Thread(target=refuse)
        thread.start()
        finding = check(f"https://127.0.0.1:{server.getsockname()[1]}")
        thread.join(10)
    assert finding.level == "fail"
    assert "SSL" in finding.text
    assert finding.fix == "does the server speak TLS?"


def test_open_files_must_suffice_for_the_connections(monkeypatch):
    models = {"m": RemoteConfig(url="http://x", max_connections=1000)}
    assert check_connections(settings()) == []
    monkeypatch.setattr(upstreams.resource, "getrlimit", lambda _: (2255, 4096))
    (finding,) = check_connections(settings(models=models))
    assert (finding.level, "ulimit -n 2256" in finding.fix) == ("warn", True)
    monkeypatch.setattr(upstreams.resource, "getrlimit", lambda _: (2256, 4096))
    assert check_connections(settings(models=models))[0].level == "ok"


def database(path: Path | str) -> Finding:
    return check_database(settings(store=StoreConfig(path=str(path))), {})


def test_database_may_be_there_or_not_yet_and_nothing_is_created(tmp_path):
    file = tmp_path / "new" / "baton.db"
    assert (database(file).level, database(file).text) == ("ok", f"{file} will be created")
    assert not file.parent.exists()
    file.parent.mkdir()
    sqlite3.connect(file).close()
    assert database(file).text == f"{file} can be written"
    assert database(MEMORY).level == "ok"


def test_database_that_is_none_or_cannot_be_written_fails(tmp_path):
    file = tmp_path / "baton.db"
    file.write_bytes(b"this is no database, but it is long enough to be taken for one" * 20)
    assert database(file).level == "fail"
    assert database("/proc/self/baton.db").level == "fail"
    blocked = tmp_path / "file"
    blocked.write_text("")
    assert database(blocked / "baton.db").level == "fail"


def test_database_on_a_network_disk_is_warned_about(tmp_path, monkeypatch):
    mounts = tmp_path / "mountinfo"
    mounts.write_text(
        "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n"
        f"30 22 0:40 / {tmp_path} rw,relatime - nfs4 server:/export rw\n"
        "31 22 0:41 / /mnt/a\\040b rw - cifs //server/share rw\n"
    )
    monkeypatch.setattr(stores, "_MOUNTS", mounts)
    finding = database(tmp_path / "baton.db")
    assert (finding.level, "lies on nfs4" in finding.text) == ("warn", True)
    assert stores._file_system(Path("/mnt/a b/x")) == "cifs"
    assert stores._file_system(Path("/etc/x")) == "ext4"


def test_redis_is_not_asked_where_none_is_configured():
    assert check_redis(settings()) == []


def redis(url: str) -> Finding:
    (finding,) = check_redis(settings(store=StoreConfig(redis_url=url)))
    return finding


@pytest.mark.skipif(find_server() is None, reason="there is no Redis or Valkey server")
def test_redis_that_answers_tells_its_version():
    server = RedisServer()
    try:
        finding = redis(f"redis://127.0.0.1:{server.port}")
    finally:
        server.close()
    assert finding.level == "ok"
    assert finding.text.startswith(f"redis://127.0.0.1:{server.port} answers: ")


def test_redis_that_is_not_there_fails_without_telling_the_password():
    finding = redis("redis://user:secret-password@127.0.0.1:1")
    assert finding.level == "fail"
    assert "redis://127.0.0.1:1 does not answer" in finding.text
    assert "secret-password" not in finding.text + finding.fix
    assert redis("http://x").level == "fail"
