"""Keys of a real gateway process: made over HTTP and on the command line, while it runs."""

import json
import subprocess
import time
from pathlib import Path

import httpx

from tests.gateway.ops.conftest import FAKE, ROOT, command, environment, running


def status(client: httpx.Client, path: str, key: str = "") -> int:
    return client.get(path, headers={"x-api-key": key} if key else {}).status_code


def eventually(client: httpx.Client, path: str, key: str, expected: int) -> None:
    """Wait for a status that must come within two seconds."""
    deadline = time.monotonic() + 2
    while (found := status(client, path, key)) != expected:
        assert time.monotonic() < deadline, f"still {found}"
        time.sleep(0.02)


def test_gateway_is_closed_by_its_first_key_and_follows_the_command_line(tmp_path: Path):
    config = f'{FAKE}\n[store]\npath = "{tmp_path / "baton.db"}"\n'
    with running(tmp_path / "gateway", config) as gateway:
        client = gateway.client
        assert status(client, "/v1/models") == 200
        admin = client.post("/admin/keys", json={"name": "ops", "is_admin": True}).json()["key"]
        assert status(client, "/v1/models") == 401
        assert status(client, "/admin/keys", admin) == 200

        def baton(*arguments: str) -> str:
            options = ("--config", str(tmp_path / "gateway" / "gateway.toml"))
            done = subprocess.run(
                command("keys", *arguments, *options), cwd=ROOT, env=environment(), capture_output=True, text=True, check=True
            )
            return done.stdout

        created = json.loads(baton("create", "--name", "alice", "--json"))
        eventually(client, "/v1/models", created["key"], 200)
        assert status(client, "/admin/keys", created["key"]) == 403
        baton("revoke", created["id"])
        eventually(client, "/v1/models", created["key"], 401)
        assert status(client, "/v1/models", admin) == 200
        client.close()
        assert gateway.stop() == 0
        log = gateway.log()
    assert created["id"] not in log
    for key in (admin, created["key"]):
        assert key[17:] not in log


def test_configured_admin_key_works_without_any_stored_key(tmp_path: Path):
    config = f'{FAKE}\n[store]\npath = "{tmp_path / "baton.db"}"\n'
    with running(tmp_path / "gateway", config, BATON_API_KEY="user", BATON_ADMIN_KEY="boss") as gateway:
        assert [status(gateway.client, "/admin/keys", key) for key in ("", "user", "boss")] == [401, 403, 200]
        assert [status(gateway.client, "/v1/models", key) for key in ("", "user", "boss")] == [401, 200, 200]
    assert not (tmp_path / "baton.db").exists()
