"""The torch engine's child: `python -m backends.engine.worker`. Started by `backends.engine.backend`, one per loaded model."""

from backends.child.worker import run
from backends.engine.config import EngineConfig
from backends.engine.service import Service

if __name__ == "__main__":
    run(EngineConfig, Service)
