"""What is said in two places says the same, and the installation stays light."""

import os
import re
import shlex
import subprocess
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from packaging.requirements import Requirement

from gateway.config_sources.embedded import MISSING

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def project() -> dict[str, Any]:
    with (ROOT / "pyproject.toml").open("rb") as file:
        table: dict[str, Any] = tomllib.load(file)["project"]
    return table


def test_changelog_begins_with_the_version_of_the_package(project: dict[str, Any]) -> None:
    versions = re.findall(r"^## \[?(\d[^\]\s]*)", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)
    assert versions[0] == project["version"]


def test_help_texts_in_the_readme_are_what_the_commands_print() -> None:
    """A block that begins with `$ make` or `$ baton ... --help` shows the output that follows."""
    blocks = re.findall(
        r"^```\w*\n\$ (make|baton[^\n]*--help)\n(.*?)^```", (ROOT / "README.md").read_text("utf-8"), re.M | re.S
    )
    assert blocks, "the README shows no help text"
    for command, text in blocks:
        words = shlex.split(command)
        if words[0] == "baton":
            words = [sys.executable, "-m", "gateway", *words[1:]]
        # `make test` tells the makes below it how it was called itself, which would show in their output.
        environment = {name: value for name, value in os.environ.items() if "MAKE" not in name} | {"COLUMNS": "80"}
        done = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60, check=True)
        assert text.strip() == done.stdout.strip(), command


def test_installer_and_package_agree_on_versions(project: dict[str, Any], ci: SimpleNamespace) -> None:
    assert f"llama-cpp-python=={ci.llama_wheel.VERSION}" in project["optional-dependencies"]["edge"]
    assert ci.bootstrap.SERVED_MODELS[0] in MISSING
    lowest, highest = ci.bootstrap.SUPPORTED[0], ci.bootstrap.SUPPORTED[-1]
    assert project["requires-python"] == f">={lowest[0]}.{lowest[1]},<{highest[0]}.{highest[1] + 1}"


def test_neither_the_gateway_nor_the_edge_extra_pulls_torch(project: dict[str, Any]) -> None:
    waiting = [*project["dependencies"], *project["optional-dependencies"]["edge"]]
    seen: set[str] = set()
    while waiting:
        requirement = Requirement(waiting.pop())
        if requirement.name in seen or (requirement.marker and not requirement.marker.evaluate({"extra": ""})):
            continue
        seen.add(requirement.name)
        waiting += _requires(requirement.name)
    assert {"litestar", "numpy"} <= seen
    assert not {"torch", "triton", "transformers"} & seen


def _requires(name: str) -> list[str]:
    try:
        return list(requires(name) or ())
    except PackageNotFoundError:
        return []


def test_peer_is_compiled_for_the_cpu_as_our_own_llama_cpp_is(ci: SimpleNamespace) -> None:
    from benchmarks import peers

    assert not [flag for flag in peers.FLAGS if "GGML_" in flag], "CPU flags come from the wheel's build alone"
    assert "-DGGML_NATIVE=ON" in ci.llama_wheel.build_flags()
