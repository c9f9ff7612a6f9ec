"""Remote backends in front of scripted upstreams."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest

from tests.backends.remote.rig import Rig


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    async with AsyncExitStack() as stack:
        yield Rig(stack)
