"""The engine child: `python -m edge.worker`. Started by `edge.engine`, one per loaded model.

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

import msgspec

from edge.config import EdgeConfig
from edge.llama.model import LoadError
from edge.service import Service
from edge.talk import Talker

_PR_SET_PDEATHSIG = 1
_SEND_BUFFER_BYTES = 1 << 20  # a step never waits for a parent that is busy for a moment


def main() -> int:
    """Serve one model until the parent says stop."""
    parser = argparse.ArgumentParser(prog="python -m edge.worker", description=__doc__)
    parser.add_argument("--fd", required=True, type=int, help="inherited descriptor of the socket to the parent")
    parser.add_argument("--config", required=True, help="EdgeConfig as JSON")
    parser.add_argument("--name", required=True, help="public name of the model")
    arguments = parser.parse_args()
    config = msgspec.json.decode(arguments.config, type=EdgeConfig)
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(levelname)s %(name)s %(message)s")
    _settle_process(config)
    connection = socket.socket(fileno=arguments.fd)
    connection.setblocking(True)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER_BYTES)
    talker = Talker(connection)
    threading.Thread(target=_load, args=(talker, arguments.name, config), name="load", daemon=True).start()
    talker.run()
    connection.close()
    # Native threads may be in the middle of a step: the kernel frees everything at once, and nothing is left to save.
    os._exit(0)


def _load(talker: Talker, name: str, config: EdgeConfig) -> None:
    try:
        service = Service(name, config, talker.emit)
    except (LoadError, MemoryError) as error:
        message = str(error) or "not enough memory"
        talker.failed(message)
        return
    except BaseException:
        logging.getLogger("baton.engine").exception("loading failed")
        os._exit(70)
    gc.freeze()
    service.loop.start()
    talker.ready(service)


def _settle_process(config: EdgeConfig) -> None:
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


if __name__ == "__main__":
    sys.exit(main())
