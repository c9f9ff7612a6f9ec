"""Installs the gateways that Baton is measured beside, each into an environment of its own, once per machine and Python.

Their versions are fixed, so that figures of different days compare. Their dependencies contradict each other's and ours, and
they outlive a checkout, so they are kept beside the wheels. Needs `.ci` on the path; `make bench` sees to that.
"""

import shutil
import sys
from pathlib import Path

from msgspec import Struct
from steps import CACHE, StepError, locked, logged, say
from system import require_venv


class PythonPeer(Struct, frozen=True, kw_only=True):
    """A program from the package index."""

    name: str
    version: str
    extra: str = ""

    @property
    def requirement(self) -> str:
        """What pip is asked for."""
        return f"{self.name}[{self.extra}]=={self.version}" if self.extra else f"{self.name}=={self.version}"


# The proxy extra of later ones (from 1.108.9 on at least) asks for packages that the index does not have.
LITELLM = PythonPeer(name="litellm", version="1.108.0", extra="proxy")
VLLM_ROUTER = PythonPeer(name="vllm-router", version="0.1.17")


def program(peer: PythonPeer) -> Path:
    """Return the path of a peer's command, installing it when it is not there.

    Raises:
        StepError: it cannot be installed here.
    """
    home = CACHE / "peers" / f"{peer.name}-{peer.version}-py{sys.version_info.major}.{sys.version_info.minor}"
    done = home / "installed"
    with locked(home.with_name(home.name + ".lock"), f"installing {peer.name}"):
        if not done.is_file():
            _install(peer, home)
            done.touch()
    return home / "bin" / peer.name


def _install(peer: PythonPeer, home: Path) -> None:
    require_venv()
    say(f"installing {peer.requirement}, once: about a minute, kept in {home}")
    # An environment cannot be moved, so it is made in its place, and is whole only once `installed` says so.
    shutil.rmtree(home, ignore_errors=True)
    try:
        logged([sys.executable, "-m", "venv", str(home)])
        logged([str(home / "bin" / "python"), "-m", "pip", "install", peer.requirement])
    except StepError:
        shutil.rmtree(home, ignore_errors=True)
        raise


if __name__ == "__main__":
    for each in (LITELLM, VLLM_ROUTER):
        print(program(each))
