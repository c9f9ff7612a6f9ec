"""The GGUF engine's child: `python -m edge.worker`. Started by `edge.engine`, one per loaded model."""

from backends.child.worker import run
from edge.config import EdgeConfig
from edge.service import Service

if __name__ == "__main__":
    run(EdgeConfig, Service)
