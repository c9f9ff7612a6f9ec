"""A running gateway that is told to read its configuration again."""

import signal
from pathlib import Path

import httpx
import pytest

from tests.gateway.operation.patience import eventually
from tests.gateway.ops.conftest import running

SLOW = """
[server]
drain_timeout_s = 20
{server}
[models.fake]
engine = "fake"
token_delay_s = 0.02
replies = [{{ text = "{text}" }}]
{more}
"""
CHAT = {"model": "fake", "messages": [{"role": "user", "content": "hi"}]}


def config(text: str, more: str = "", server: str = "") -> str:
    return SLOW.format(text=text, more=more, server=server)


def answer(gateway, model: str = "fake", key: str = "") -> str:
    headers = {"x-api-key": key} if key else {}
    response = gateway.client.post("/v1/chat/completions", json={**CHAT, "model": model}, headers=headers)
    if response.status_code != 200:
        return str(response.status_code)
    return response.json()["choices"][0]["message"]["content"]


def write(folder: Path, text: str) -> None:
    (folder / "gateway" / "gateway.toml").write_text(text)


def test_signal_brings_the_new_configuration_while_a_stream_of_the_old_one_ends_whole(start, tmp_path):
    with start(config("o" * 100)) as gateway:
        with gateway.client.stream("POST", "/v1/chat/completions", json={**CHAT, "stream": True}) as response:
            lines = response.iter_lines()
            assert any('"content":"o"' in line for line in lines)
            write(tmp_path, config("new", '[models.second]\nengine = "fake"\nreplies = [{ text = "two" }]'))
            gateway.process.send_signal(signal.SIGHUP)
            with httpx.Client(base_url=gateway.url, timeout=20) as other:
                eventually(lambda: other.get("/v1/models").json()["data"][-1]["id"] == "second")
                body = other.post("/v1/chat/completions", json=CHAT).json()
                assert body["choices"][0]["message"]["content"] == "new"
            rest = [line for line in lines if line]
        assert sum('"content":"o"' in line for line in rest) == 99
        assert rest[-1] == "data: [DONE]"
        assert answer(gateway, "second") == "two"
        assert "the configuration was reloaded: added second; changed fake" in gateway.log()
        assert gateway.stop() == 0


def test_admin_is_told_what_changed_and_what_needs_a_restart(start, tmp_path):
    with start(config("old")) as gateway:
        write(tmp_path, config("new", server="max_body_bytes = 4096"))
        response = gateway.client.post("/admin/reload")
        assert response.status_code == 200
        assert response.json() == {
            "added": [],
            "changed": ["fake"],
            "removed": [],
            "sections": [],
            "restart": ["server.max_body_bytes"],
        }
        assert answer(gateway) == "new"
        assert gateway.client.post("/admin/reload").json()["changed"] == []


def test_bad_configuration_is_answered_with_all_mistakes_and_changes_nothing(start, tmp_path):
    with start(config("old")) as gateway:
        write(tmp_path, config("new", server="prot = 1\nlog_level = 'loud'"))
        response = gateway.client.post("/admin/reload")
        assert response.status_code == 400
        assert response.json()["error"]["code"] == "configuration_invalid"
        assert len(response.json()["mistakes"]) == 2
        gateway.process.send_signal(signal.SIGHUP)
        eventually(lambda: gateway.log().count("the configuration was not reloaded: server.prot") == 2)
        assert answer(gateway) == "old"
        write(tmp_path, "this is no TOML")
        assert gateway.client.post("/admin/reload").status_code == 400
        assert gateway.client.get("/health/ready").status_code == 200


def test_keys_in_a_file_are_changed_by_a_reload(start, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("first-key\n")
    with start(config("hi", server=f'api_key_file = "{keys}"'), BATON_ADMIN_KEY="the-admin-key") as gateway:
        assert answer(gateway, key="first-key") == "hi"
        keys.write_text("second-key\n")
        assert gateway.client.post("/admin/reload", headers={"x-api-key": "second-key"}).status_code == 401
        done = gateway.client.post("/admin/reload", headers={"x-api-key": "the-admin-key"})
        assert done.json()["sections"] == ["api keys"]
        assert answer(gateway, key="first-key") == "401"
        assert answer(gateway, key="second-key") == "hi"
        assert gateway.client.post("/admin/reload", headers={"x-api-key": "second-key"}).status_code == 403


def test_model_that_is_removed_is_not_found_any_more(start, tmp_path):
    second = '[models.second]\nengine = "fake"\n[routes.both]\ndeployments = [{ model = "fake" }, { model = "second" }]'
    with start(config("hi", second)) as gateway:
        assert answer(gateway, "both") != "404"
        write(tmp_path, config("hi"))
        assert gateway.client.post("/admin/reload").json() == {
            "added": [],
            "changed": [],
            "removed": ["second"],
            "sections": ["routes"],
            "restart": [],
        }
        assert answer(gateway, "both") == answer(gateway, "second") == "404"
        assert answer(gateway) == "hi"


def test_reload_that_comes_while_it_drains_changes_nothing(start, tmp_path):
    with start(config("x" * 100)) as gateway:
        with gateway.client.stream("POST", "/v1/chat/completions", json={**CHAT, "stream": True}) as response:
            lines = response.iter_lines()
            next(lines)
            gateway.process.send_signal(signal.SIGTERM)
            eventually(lambda: httpx.get(f"{gateway.url}/health/ready").status_code == 503)
            write(tmp_path, config("new"))
            gateway.process.send_signal(signal.SIGHUP)
            assert [line for line in lines if line][-1] == "data: [DONE]"
        assert gateway.process.wait(30) == 0
        assert "was reloaded" not in gateway.log()


@pytest.mark.parametrize("workers", [1, 2])
def test_gguf_model_that_a_reload_adds_is_refused_where_several_workers_run(tmp_path, workers):
    (tmp_path / "tiny.gguf").write_bytes(b"GGUF no model")
    with running(tmp_path / "gateway", config("hi", server=f"workers = {workers}")) as gateway:
        write(tmp_path, config("hi", f'[models.tiny]\npath = "{tmp_path / "tiny.gguf"}"', f"workers = {workers}"))
        response = gateway.client.post("/admin/reload")
        assert response.status_code == 400
        expected = "would load this model 2 times" if workers == 2 else "models.tiny: did not start"
        assert expected in response.json()["mistakes"][0]
        assert answer(gateway) == "hi"
