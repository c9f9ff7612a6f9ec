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
import sys
import threading
from typing import Any

import msgspec
import zmq

from edge.config import EdgeConfig
from edge.talk import Talker

_PR_SET_PDEATHSIG = 1


def main() -> int:
    """Serve one model until the parent says stop."""
    parser = argparse.ArgumentParser(prog="python -m edge.worker", description=__doc__)
    parser.add_argument("--socket", required=True, help="ZeroMQ address that the parent listens at")
    parser.add_argument("--config", required=True, help="EdgeConfig as JSON")
    parser.add_argument("--name", required=True, help="public name of the model")
    arguments = parser.parse_args()
    config = msgspec.json.decode(arguments.config, type=EdgeConfig)
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(levelname)s %(name)s %(message)s")
    _settle_process(config)
    context = zmq.Context()
    socket: Any = context.socket(zmq.PAIR)
    socket.setsockopt(zmq.SNDHWM, 0)
    socket.setsockopt(zmq.LINGER, 1000)
    socket.connect(arguments.socket)
    talker = Talker(socket)
    threading.Thread(target=_load, args=(talker, arguments.name, config), name="load", daemon=True).start()
    talker.run()
    socket.close()
    context.term()
    # Native threads may be in the middle of a step: the kernel frees everything at once, and nothing is left to save.
    os._exit(0)


def _load(talker: Talker, name: str, config: EdgeConfig) -> None:
    # Importing llama.cpp takes half a second, and the parent wants to hear a heart beat meanwhile.
    from edge.llama.model import LoadError
    from edge.service import Service

    try:
        service = Service(name, config, talker.emit)
    except (LoadError, MemoryError) as error:
        message = str(error) or "not enough memory"
        talker.call(lambda: talker.failed(message))
        return
    except BaseException:
        logging.getLogger("baton.engine").exception("loading failed")
        os._exit(70)
    gc.freeze()
    service.loop.start()
    talker.call(lambda: talker.ready(service))


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
