"""What must come from the operating system: compilers, Node and a browser. Says which command brings what is missing."""

from __future__ import annotations

import os
import shutil
from importlib.util import find_spec

from steps import StepError, logged, say

# Commands that tests use, and the Debian packages that bring them.
_TEST_PROGRAMS = {"npm": ("nodejs", "npm"), "chromium": ("chromium",), "chromedriver": ("chromium-driver",)}


def require_compilers() -> None:
    """Check for what llama.cpp is built with.

    Raises:
        StepError: naming what is missing and how to install it.
    """
    wanted = {"gcc": ("gcc", "cc", "clang"), "g++": ("g++", "c++", "clang++"), "cmake": ("cmake",)}
    missing = [package for package, commands in wanted.items() if not any(map(shutil.which, commands))]
    if missing:
        names = " ".join(missing)
        raise StepError(f"llama.cpp must be compiled and this is missing: {names}\n  sudo apt-get install -y {names}")


def require_venv() -> None:
    """Check that this Python can create environments: Debian ships that part separately.

    Raises:
        StepError: naming the package to install.
    """
    if not find_spec("ensurepip"):
        raise StepError("this Python cannot create environments; install that\n  sudo apt-get install -y python3-venv")


def provide_test_programs() -> None:
    """Install Node and Chromium with apt-get where that is possible, else say which tests will not run."""
    missing = [package for command, packages in _TEST_PROGRAMS.items() if not shutil.which(command) for package in packages]
    if not missing:
        return
    names = " ".join(missing)
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        say(f"{names} not found, so the tests that need it will not run; install it with\n  sudo apt-get install -y {names}")
        return
    say(f"installing {names} for the tests")
    quiet = {"DEBIAN_FRONTEND": "noninteractive"}
    try:
        logged(["apt-get", "update"], env=quiet)
        logged(["apt-get", "install", "-y", "--no-install-recommends", *missing], env=quiet)
    except StepError as error:
        say(f"could not install {names}, so the tests that need it will not run:\n{error}")
