"""Waiting for what another process does."""

import time
from collections.abc import Callable


def eventually(condition: Callable[[], object], within_s: float = 20.0) -> None:
    """Wait until it holds; how long is no part of what is tested."""
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, f"it did not come true within {within_s} s"
        time.sleep(0.02)
