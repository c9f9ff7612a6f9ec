"""`baton keys`, as a person and a script meet it, beside a ring that runs in another process."""

import asyncio
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import pytest

from gateway.cli import main
from gateway.cli.keys_options import expiry
from gateway.keys.ring import KeyRing
from gateway.keys.sqlite_store import SqliteKeyStore
from gateway.store.sqlite import Database

ROOT = Path(__file__).resolve().parents[3]

Baton = Callable[..., tuple[int, str, str]]


@pytest.fixture
def config(tmp_path: Path) -> Path:
    file = tmp_path / "gateway.toml"
    file.write_text(f'[models.fake]\nengine = "fake"\n[store]\npath = "{tmp_path / "baton.db"}"\n')
    return file


@pytest.fixture
def baton(config: Path, capsys, monkeypatch) -> Baton:
    """Run `baton keys` in this process: exit code, stdout, stderr."""
    for variable in [name for name in os.environ if name.startswith("BATON_")]:
        monkeypatch.delenv(variable)

    def run(action: str, *arguments: str) -> tuple[int, str, str]:
        code = main(["keys", action, "--config", str(config), *arguments])
        return code, *capsys.readouterr()

    return run


def test_created_key_is_the_only_thing_on_stdout(baton):
    code, key, said = baton("create", "--name", "alice")
    assert code == 0
    assert re.fullmatch(r"sk-baton-[A-Za-z0-9_-]{43}\n", key)
    assert re.match(r"key_[0-9a-f]{16} \(alice\) is valid\. ", said)
    assert key.strip() not in said


def test_every_option_arrives(baton):
    options = (
        "--name ci --models small,org/tiny --tenant team --rpm 60 --tpm 1000 --concurrency 2 --budget 1.5 --budget-period day "
        "--priority batch --weight 0.5 --expires 2099-01-02 --admin --json"
    )
    created = json.loads(baton("create", *options.split())[1])
    assert created["key"].startswith(created["prefix"])
    expected = {
        "name": "ci",
        "models": ["small", "org/tiny"],
        "tenant": "team",
        "priority": "batch",
        "weight": 0.5,
        "is_admin": True,
        "expires_at": 4070995200,
        "allowance": {
            "requests_per_minute": 60,
            "tokens_per_minute": 1000,
            "concurrency": 2,
            "budget_usd": 1.5,
            "budget_period": "day",
        },
    }
    assert {name: created[name] for name in expected} == expected


def test_list_is_a_table_of_all_keys_without_any(baton):
    keys = [baton("create", "--name", name, "--rpm", "5")[1].strip() for name in ("alice", "bob\x1b[31m")]
    key_id = json.loads(baton("list", "--json")[1])["data"][0]["id"]
    assert baton("revoke", key_id) == (0, f"{key_id} (alice) is revoked.\n", "")
    code, table, _ = baton("list")
    head, alice, bob = table.splitlines()
    assert (code, head.split()[:3]) == (0, ["ID", "KEY", "NAME"])
    assert "revoked" in alice
    assert "active" in bob
    assert "5 rpm" in bob
    assert "\x1b" not in table
    for text in (table, baton("list", "--json")[1]):
        for key in keys:
            assert key[:17] in text
            assert key[:18] not in text
            assert sha256(key.encode()).hexdigest() not in text


def test_list_of_nothing_creates_no_file(baton, tmp_path):
    assert baton("list")[0] == 0
    assert not (tmp_path / "baton.db").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("revoke", "key_0123456789abcdef"), "No key has the id 'key_0123456789abcdef'."),
        (("create", "--name", "k", "--rpm", "-1"), "requests_per_minute"),
        (("create", "--name", "k", "--budget", "inf"), "finite"),
        (("create", "--name", "k", "--weight", "nan"), "weight"),
        (("create", "--name", "k", "--expires", "2001-01-01"), "in the future"),
        (("create", "--name", "k", "--tenant", "a b"), "tenant"),
    ],
)
def test_what_cannot_be_done_is_one_line_and_exit_code_1(baton, arguments, message):
    code, out, said = baton(*arguments)
    assert (code, out, said.count("\n")) == (1, "", 1)
    assert said.startswith("baton: ")
    assert message in said


@pytest.mark.parametrize("arguments", [("create",), ("create", "--name", "k", "--expires", "soon"), ("revoke",)])
def test_wrong_usage_exits_with_2(baton, arguments):
    with pytest.raises(SystemExit) as exited:
        baton(*arguments)
    assert exited.value.code == 2


def test_unusable_store_is_one_line(baton, tmp_path):
    (tmp_path / "baton.db").mkdir()
    code, out, said = baton("create", "--name", "k")
    assert (code, out, said.count("\n")) == (1, "", 1)
    assert "baton.db" in said


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90s", 1090),
        ("30d", 1000 + 30 * 86_400),
        ("2w", 1000 + 14 * 86_400),
        ("2027-01-31", 1801353600),
        ("2027-01-31T18:00+01:00", 1801414800),
    ],
)
def test_expiry_is_a_span_or_a_date(text, seconds):
    assert expiry(text, lambda: 1000.5) == seconds


async def test_running_ring_follows_what_another_process_does_within_two_seconds(config, tmp_path):
    database = Database(str(tmp_path / "baton.db"))
    ring = KeyRing(SqliteKeyStore(database))
    await ring.start()
    assert ring.is_open

    async def other_process(*arguments: str) -> str:
        command = [sys.executable, "-m", "gateway", "keys", *arguments, "--config", str(config)]
        clean = {name: value for name, value in os.environ.items() if not name.startswith("BATON_")}
        done = await asyncio.to_thread(
            subprocess.run, command, cwd=ROOT, env=clean, capture_output=True, text=True, timeout=60, check=True
        )
        return done.stdout

    async def within_two_seconds(condition: Callable[[], bool]) -> None:
        for _ in range(200):
            if condition():
                return
            await asyncio.sleep(0.01)
        pytest.fail("it took more than two seconds")

    created = json.loads(await other_process("create", "--name", "alice", "--json"))
    digest = sha256(created["key"].encode()).digest()
    await within_two_seconds(lambda: ring.find(digest) is not None)
    await other_process("revoke", created["id"])
    await within_two_seconds(lambda: ring.find(digest) is None)
    assert not ring.is_open
    await ring.close()
    await database.close()
