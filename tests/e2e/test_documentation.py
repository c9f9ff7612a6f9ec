"""What the documentation shows is run, and what it lists is compared with the code."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from backends.engine.config import EngineConfig
from backends.remote.config import RemoteConfig
from edge.config import EdgeConfig
from gateway.admission.config import AdmissionConfig
from gateway.cli.parser import build_parser
from gateway.config import NAMED, SECTIONS, load_settings
from gateway.config_sources.embedded import find_embedded_model
from gateway.routing.config import CanaryConfig, Member
from tests.e2e.gateway_process import ROOT, Server
from tests.e2e.test_openai_node import NODE, node

README = (ROOT / "README.md").read_text("utf-8")
CONFIGURATION = (ROOT / "docs" / "configuration.md").read_text("utf-8")


ENGINE = (ROOT / "docs" / "engine.md").read_text("utf-8")
PAGES = [(ROOT / "docs" / "gateway.md").read_text("utf-8"), ENGINE]


def blocks(language: str, page: str = README) -> list[str]:
    found = re.findall(rf"^```{language}\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert found, f"the page has no {language}"
    return found


def run(server: Server, command: list[str], folder: Path, **options: str) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, **options)
    assert done.returncode == 0, f"{done.stdout}{done.stderr}\n{server.log()[-2000:]}"
    assert done.stdout.strip()
    return done.stdout


def at(server: Server, code: str) -> str:
    assert "http://127.0.0.1:8000" in code
    return code.replace("http://127.0.0.1:8000", server.url)


@pytest.mark.parametrize("code", blocks("bash"))
def test_shell_example(server: Server, tmp_path: Path, code: str) -> None:
    answer = json.loads(run(server, ["bash", "-euc", at(server, code)], tmp_path))
    assert answer["object"] in ("chat.completion", "list")
    assert "error" not in answer


@pytest.mark.parametrize("code", blocks("python"))
def test_python_example(server: Server, tmp_path: Path, code: str) -> None:
    (tmp_path / "example.py").write_text(at(server, code))
    run(server, [sys.executable, "example.py"], tmp_path)


@pytest.mark.parametrize("code", blocks("js"))
def test_node_example(server: Server, tmp_path: Path, code: str) -> None:
    (tmp_path / "node_modules").symlink_to(NODE / "node_modules")
    (tmp_path / "chat.mjs").write_text(at(server, code))
    run(server, [node(), "chat.mjs"], tmp_path)


@pytest.mark.parametrize("text", blocks("toml"))
def test_configuration_example(tmp_path: Path, text: str) -> None:
    (tmp_path / "gateway.toml").write_text(text)
    (tmp_path / "keys.txt").write_text("secret\n")
    (tmp_path / "models").mkdir()
    for path in re.findall(r'path = "(.*)"', text):
        (tmp_path / path).symlink_to(find_embedded_model() or os.devnull)
    variables = {"BATON_SERVER__PORT": "9000", "EXAMPLE_API_KEY": "secret"} | (
        {"BATON_MODELS__QWEN3_4B__SLOTS": "4"} if "qwen3-4b" in text else {}
    )
    settings = load_settings(tmp_path / "gateway.toml", variables)
    assert settings.server.port == 9000
    assert [model.slots for model in settings.models.values() if isinstance(model, EdgeConfig)] in ([4], [])


@pytest.mark.parametrize("code", blocks("bash", ENGINE))
def test_shell_example_of_the_torch_engine(torch_server: Server, tmp_path: Path, code: str) -> None:
    answer = json.loads(run(torch_server, ["bash", "-euc", at(torch_server, code)], tmp_path))
    assert answer["object"] in ("chat.completion", "text_completion")


def test_metrics_of_the_torch_engine_are_documented(torch_server: Server) -> None:
    rows = re.findall(r"^\| (`baton_engine_.*?) \|", ENGINE, re.MULTILINE)
    named = {name.removeprefix("baton_engine").strip("_") for row in rows for name in re.findall(r"`(\w+)`", row)}
    exported = set(re.findall(r"^baton_engine_(\w+){", torch_server.http.get("/metrics").text, re.MULTILINE))
    assert exported - {"state", "running", "waiting", "slots", "starts_total", "crashes_total"} == named


@pytest.mark.parametrize("text", [text for page in PAGES for text in blocks("toml", page)])
def test_configuration_in_the_documentation_loads(tmp_path: Path, text: str) -> None:
    (tmp_path / "gateway.toml").write_text(text)
    for path in re.findall(r'^path = "(.*)"', text, re.MULTILINE):
        (tmp_path / path).mkdir(parents=True)
    settings = load_settings(tmp_path / "gateway.toml", {"EXAMPLE_API_KEY": "secret"})
    assert settings.models


def documented(heading: str) -> dict[str, str]:
    section = CONFIGURATION.split(f"\n## {heading}", 1)[1].split("\n## ", 1)[0]
    return dict(re.findall(r"^\| `(\w+)` \| (.*?) \|", section, re.MULTILINE))


@pytest.mark.parametrize(
    ("heading", "cls"),
    [
        ('`[models.NAME]` with `engine = "gguf"`', EdgeConfig),
        ('`[models.NAME]` with `engine = "torch"`', EngineConfig),
        ('`[models.NAME]` with `engine = "remote"`', RemoteConfig),
        ("`[[routes.NAME.deployments]]`", Member),
        ("`[routes.NAME.canary]`", CanaryConfig),
        ("`[queue]`, `[queues.NAME]`", AdmissionConfig),
        *((f"`[{name}]`", cls) for name, cls in SECTIONS.items() if name != "queue"),
        *((f"`[{name}.NAME]`", cls) for name, cls in NAMED.items() if name != "queues"),
    ],
)
def test_table_of_settings_is_that_of_the_code(heading: str, cls: type[msgspec.Struct]) -> None:
    actual = {field.name: "required" if field.required else default(field) for field in msgspec.structs.fields(cls)}
    assert documented(heading) == actual


def default(field: msgspec.structs.FieldInfo) -> str:
    value = field.default_factory() if field.default is msgspec.NODEFAULT else field.default
    return f"`{msgspec.json.encode(value).decode()}`"


def test_commands_are_those_of_the_command_line() -> None:
    [commands] = [action.choices for action in build_parser()._actions if action.dest == "command"]
    section = README.split("The commands of `baton`:", 1)[1].split("\n## ", 1)[0]
    assert re.findall(r"^\| `([\w-]+)` \|", section, re.MULTILINE) == list(commands)


def test_links_lead_somewhere() -> None:
    for page in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")):
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text("utf-8")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
