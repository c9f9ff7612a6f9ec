"""The command line, as a person meets it."""

import json
import os
import pty
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from gateway.cli.parser import build_parser
from gateway.cli.settings import model_name
from gateway.config_sources.embedded import find_embedded_model

ROOT = Path(__file__).resolve().parents[3]
FAKE = '[models.fake]\nengine = "fake"\n'


COMMANDS = ("serve", "check-config", "models", "chat", "keys", "doctor", "eval", "export")


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_is_explained(command):
    (commands,) = (action for action in build_parser()._actions if action.dest == "command")
    assert commands.choices.keys() == set(COMMANDS)
    assert all(action.help for action in commands.choices[command]._actions)


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_a_command_starts_with_what_it_does(run_baton, command):
    result = run_baton(command, "--help")
    assert result.returncode == 0
    assert result.stdout.startswith(f"usage: baton {command} ")
    assert "options:" in result.stdout


def test_help_names_every_command(run_baton):
    text = run_baton("--help").stdout
    assert all(re.search(rf"^ +{command}\b", text, re.MULTILINE) for command in COMMANDS)


def test_version_is_one_line(run_baton):
    result = run_baton("--version")
    assert (result.returncode, result.stdout.count("\n")) == (0, 1)
    assert result.stdout.startswith("baton ")


@pytest.mark.parametrize("arguments", [[], ["fly"], ["serve", "--prot", "1"], ["serve", "--port", "x"]])
def test_wrong_usage_exits_with_2(run_baton, arguments):
    result = run_baton(*arguments)
    assert result.returncode == 2
    assert "usage: baton" in result.stderr


def test_check_config_prints_what_loads_again_as_the_same(run_baton, tmp_path):
    (tmp_path / "keys").write_text("secret-one\n")
    (tmp_path / "tiny.gguf").write_bytes(b"GGUF")
    first, second = tmp_path / "first.toml", tmp_path / "second.toml"
    first.write_text(
        FAKE + 'replies = [{ text = "a \\"quoted\\" text", tool_calls = [{ name = "f" }] }]\n'
        '[models."org/tiny"]\nengine = "gguf"\npath = "tiny.gguf"\n[server]\napi_key_file = "keys"\n'
    )
    result = run_baton("check-config", "--config", str(first), BATON_API_KEY="secret-two", BATON_SERVER__PORT="9")
    assert result.returncode == 0
    assert "secret" not in result.stdout
    assert "# 2 API keys are set." in result.stdout
    assert tomllib.loads(result.stdout)["server"]["port"] == 9
    second.write_text(result.stdout)
    again = run_baton("check-config", "--config", str(second), BATON_API_KEY="secret-two")
    assert again.stdout == result.stdout


def test_check_config_as_json_has_the_same_content(run_baton, tmp_path):
    file = tmp_path / "gateway.toml"
    file.write_text(FAKE)
    content = json.loads(run_baton("check-config", "--json", "--config", str(file)).stdout)
    assert content["api_keys"] == 0
    assert content["server"]["port"] == 8000
    assert content["models"]["fake"]["engine"] == "fake"


def test_check_config_prints_all_mistakes_and_exits_with_1(run_baton, tmp_path):
    file = tmp_path / "gateway.toml"
    file.write_text("[server]\nprot = 1\nport = 'x'\n[models.fake]\nengine = 'fake'\nslots = 0\n")
    result = run_baton("check-config", "--config", str(file))
    assert (result.returncode, result.stdout) == (1, "")
    assert len(result.stderr.splitlines()) == 3
    assert 'server.prot: unknown key; did you mean "port"?' in result.stderr


def test_serve_with_mistakes_prints_the_same_and_exits_with_1(run_baton, tmp_path):
    file = tmp_path / "gateway.toml"
    file.write_text("[server]\nprot = 1\n" + FAKE)
    result = run_baton("serve", "--config", str(file))
    assert result.returncode == 1
    assert result.stderr == 'baton: server.prot: unknown key; did you mean "port"?\n'


def test_models_of_the_command_line_are_named_after_their_files(run_baton, tmp_path):
    for name in ("My Model-Q4_K.gguf", "b.gguf"):
        (tmp_path / name).write_bytes(b"GGUF")
    arguments = [option for name in ("My Model-Q4_K.gguf", "b.gguf") for option in ("--model", str(tmp_path / name))]
    content = json.loads(run_baton("check-config", "--json", "--fake", *arguments).stdout)
    assert list(content["models"]) == ["my-model-q4_k", "b", "fake"]
    assert {model["engine"] for name, model in content["models"].items() if name != "fake"} == {"gguf"}
    assert model_name("///") == "model"


def test_engine_of_the_command_line_is_torch_for_folders_and_as_told_for_files(run_baton, tmp_path):
    (tmp_path / "Qwen3-0.6B").mkdir()
    (tmp_path / "b.gguf").write_bytes(b"GGUF")
    folder, file = str(tmp_path / "Qwen3-0.6B"), str(tmp_path / "b.gguf")
    engines = [
        {name: model["engine"] for name, model in json.loads(run_baton(*arguments).stdout)["models"].items()}
        for arguments in (
            ("check-config", "--json", "--model", folder + "/", "--model", file),
            ("check-config", "--json", "--engine", "torch", "--model", file),
        )
    ]
    assert engines == [{"qwen3-0.6b": "torch", "b": "gguf"}, {"b": "torch"}]
    refused = run_baton("check-config", "--engine", "gguf", "--model", folder)
    assert refused.returncode == 1
    assert "is a folder" in refused.stderr


def test_models_lists_a_configuration_and_a_running_server(run_baton, tmp_path, start):
    file = tmp_path / "gateway.toml"
    file.write_text(FAKE)
    assert "fake   fake" in run_baton("models", "--config", str(file)).stdout
    with start() as gateway:
        table = run_baton("models", "--url", gateway.url).stdout
    assert re.search(r"^fake +ready +8192 tokens$", table, re.MULTILINE)


@pytest.mark.parametrize("command", ["models", "chat"])
def test_unreachable_server_is_one_clear_line(run_baton, command):
    result = run_baton(command, "--url", "http://127.0.0.1:9", stdin="hi")
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr == "baton: nothing answers at http://127.0.0.1:9. Start a gateway with: baton serve\n"


def test_piped_message_gets_the_bare_answer(run_baton, start):
    with start() as gateway:
        result = run_baton("chat", "--url", gateway.url, "--system", "be brief", stdin="hi\nthere\n")
    assert (result.returncode, result.stdout) == (0, "Hello there!\n")
    assert "tok/s" in result.stderr


def test_refused_chat_says_why(run_baton, start):
    with start() as gateway:
        unknown = run_baton("chat", "--url", gateway.url, "--model", "nope", stdin="hi")
        empty = run_baton("chat", "--url", gateway.url, stdin="\n")
    assert unknown.returncode == empty.returncode == 1
    assert "404" in unknown.stderr
    assert "nope" in unknown.stderr
    assert empty.stderr == "baton: the input is empty\n"


def test_key_comes_from_the_environment(run_baton, start):
    with start(BATON_API_KEY="key-one,key-two") as gateway:
        assert run_baton("models", "--url", gateway.url, BATON_API_KEY="key-one").returncode == 0
        assert run_baton("models", "--url", gateway.url, "--api-key", "key-two").returncode == 0
        refused = run_baton("models", "--url", gateway.url)
    assert refused.returncode == 1
    assert "401" in refused.stderr


def test_conversation_in_a_terminal_keeps_and_resets_its_history(start):
    config = FAKE + 'replies = [{ text = "first answer" }, { text = "second answer" }]'
    with start(config) as gateway:
        spoken = talk(gateway.url, "hi", "again", "/reset", "hi", "/what", "/quit")
    said = [line for line in spoken.replace("\r", "").split("\n") if line.endswith(" answer") or line == "A new conversation."]
    assert said == ["first answer", "second answer", "A new conversation.", "first answer"]
    assert "tok/s" in spoken
    assert spoken.count("/quit leaves") == 2


def talk(url: str, *lines: str) -> str:
    """Type lines into `baton chat` on a pseudo-terminal, each after a prompt, and return all that the terminal showed."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "gateway", "chat", "--url", url]
    process = subprocess.Popen(command, cwd=ROOT, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    shown, waiting = b"", list(lines)
    try:
        while True:
            shown += os.read(ours, 65536)
            if waiting and shown.endswith(b"> "):
                os.write(ours, waiting.pop(0).encode() + b"\n")
                shown += b" "
    except OSError:  # the terminal was closed: the program has ended
        assert process.wait(10) == 0
        return shown.decode()
    finally:
        os.close(ours)
        process.kill()
        process.wait()


def test_doctor_reports_every_subject_and_succeeds(run_baton, tmp_path):
    file = tmp_path / "gateway.toml"
    file.write_text(FAKE + "[server]\nport = 0\n")
    result = run_baton("doctor", "--config", str(file))
    assert result.returncode == 0
    subjects = re.findall(r"^(?:ok|warn|fail) +([\w. ]+):", result.stdout, re.MULTILINE)
    assert subjects == [
        *("python", "gateway packages", "edge packages", "engine packages", "llama.cpp", "cpu", "cores", "limits"),
        *("model fake", "memory", "database", "port"),
    ]


def test_doctor_fails_on_a_file_that_is_no_model_and_says_what_to_do(run_baton, tmp_path):
    file = tmp_path / "broken.gguf"
    file.write_bytes(b"nothing")
    result = run_baton("doctor", "--model", str(file))
    assert result.returncode == 1
    assert re.search(r"^fail +model broken: .* is no GGUF file\n +-> ", result.stdout, re.MULTILINE)


@pytest.mark.parametrize(("name", "content"), [("config.json", "{}"), ("readme.txt", "")])
def test_doctor_reads_the_headers_of_what_the_torch_engine_shall_serve(run_baton, tmp_path, name, content):
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / name).write_text(content)
    result = run_baton("doctor", "--model", str(tmp_path / "broken"))
    assert result.returncode == 1
    assert re.search(r"^fail +model broken: .*\n +-> ", result.stdout, re.MULTILINE)
    assert "Traceback" not in result.stderr


def test_doctor_knows_the_size_of_a_model_for_the_torch_engine(run_baton):
    result = run_baton("doctor", "--engine", "torch", "--model", str(find_embedded_model()))
    assert re.search(r"^ok +model smollm2-135m-instruct.q4_1: .*\(9\d MiB, llama\)$", result.stdout, re.MULTILINE)


def test_doctor_reports_a_broken_configuration(run_baton, tmp_path):
    file = tmp_path / "gateway.toml"
    file.write_text("[server]\nprot = 1\n" + FAKE)
    result = run_baton("doctor", "--config", str(file))
    assert result.returncode == 1
    assert 'fail  configuration: server.prot: unknown key; did you mean "port"?' in result.stdout


def test_output_into_a_closed_pipe_is_no_error():
    script = f"{sys.executable} -m gateway check-config --fake | head -n 1; exit ${{PIPESTATUS[0]}}"
    result = subprocess.run(["bash", "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert "Traceback" not in result.stderr
