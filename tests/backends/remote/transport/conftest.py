"""A transport on both event loops: uvloop is what the gateway runs on, asyncio what others may."""

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest
import uvloop

from backends.remote.transport.http import HttpTransport

Make = Callable[..., HttpTransport]


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


@pytest.fixture
async def make() -> AsyncIterator[Make]:
    """Build transports that are closed in the end, and must then hold nothing."""
    made: list[HttpTransport] = []

    def build(**settings: object) -> HttpTransport:
        made.append(HttpTransport(**settings))  # type: ignore[arg-type]
        return made[-1]

    yield build
    for transport in made:
        await transport.aclose()
        assert (transport.counts.open, transport.counts.idle, transport.counts.waiting) == (0, 0, 0)


@pytest.fixture
def transport(make: Make) -> HttpTransport:
    """One with the defaults."""
    return make()
