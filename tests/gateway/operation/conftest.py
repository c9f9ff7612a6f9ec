"""Real gateway processes, as the tests of the command line start them."""

from tests.gateway.ops.conftest import run_baton, start

__all__ = ["run_baton", "start"]
