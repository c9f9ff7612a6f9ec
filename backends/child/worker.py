"""The process of an engine child, whatever the engine: `run` is the body of its program.

It dies with its parent, ignores the terminal's Ctrl-C (the parent decides), dumps no core, and reports everything that
happens over the socket; what it writes to stderr is for the parent's log.
"""

import argparse
import ctypes
import faulthandler
import gc
import logging
import os
import resource
import signal
import socket
import sys
import threading
from collections.abc import Callable
from typing import NoReturn, TypeVar

import msgspec

from backends.child.config import ChildConfig
from backends.child.errors import LoadError
from backends.child.sequence import Sequence
from backends.child.service import Service
from backends.child.talk import Talker
from backends.child.work import Emit

ConfigT = TypeVar("ConfigT", bound=ChildConfig)
S = TypeVar("S", bound=Sequence)

_PR_SET_PDEATHSIG = 1
_SEND_BUFFER_BYTES = 1 << 20  # a step never waits for a parent that is busy for a moment
_EXIT_AFTER_FAULT = 70  # EX_SOFTWARE


def run(config_type: type[ConfigT], load: Callable[[str, ConfigT, Emit], Service[S]]) -> NoReturn:
    """Serve one model until the parent says stop.

    Args:
        config_type: of the settings, which come from the command line as JSON.
        load: makes the engine from the model's public name, its settings and what takes the events of its steps. Takes as long
            as the file is large, and raises LoadError or MemoryError where another attempt would not help.
    """
    parser = argparse.ArgumentParser(description="An engine child. Started by the process that hosts it, one per loaded model.")
    parser.add_argument("--fd", required=True, type=int, help="inherited descriptor of the socket to the parent")
    parser.add_argument("--config", required=True, help="the model's settings as JSON")
    parser.add_argument("--name", required=True, help="public name of the model")
    arguments = parser.parse_args()
    config = msgspec.json.decode(arguments.config, type=config_type)
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(levelname)s %(name)s %(message)s")
    _settle_process(config)
    connection = socket.socket(fileno=arguments.fd)
    connection.setblocking(True)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER_BYTES)
    talker = Talker[S](connection)
    loading = threading.Thread(target=_load, args=(talker, lambda: load(arguments.name, config, talker.emit)), daemon=True)
    loading.name = "load"
    loading.start()
    talker.run()
    # Native threads may be in the middle of a step: the kernel frees everything at once, and nothing is left to save.
    os._exit(0)


def _load(talker: Talker[S], load: Callable[[], Service[S]]) -> None:
    try:
        service = load()
    except (LoadError, MemoryError) as error:
        talker.failed(str(error) or "not enough memory")
        return
    except BaseException:
        logging.getLogger("baton.engine").exception("loading failed")
        os._exit(_EXIT_AFTER_FAULT)
    gc.freeze()
    service.start()
    talker.ready(service)


def _settle_process(config: ChildConfig) -> None:
    faulthandler.enable()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if config.max_memory_bytes:
        resource.setrlimit(resource.RLIMIT_AS, (config.max_memory_bytes, config.max_memory_bytes))
    if sys.platform == "linux":
        parent = os.getppid()
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(0)  # it was gone before the kernel knew whom to watch
