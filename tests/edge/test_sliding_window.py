"""A SentencePiece model with a sliding window (Gemma 3, 512 tokens): prefix reuse must not lose what the window needs."""

import random
from collections.abc import AsyncIterator
from typing import Any

import llama_cpp
import pytest

from backends.types import EmbedRequest, GenerateRequest, Sampling, Text, TokenizeRequest
from edge.config import EdgeConfig
from edge.engine import EdgeBackend
from tests.models import gemma3, running

_NEW_TOKENS = 12
_BF16 = 30
_WORDS = ["river", "stone", "light", "over", "under", "quick", "green", "town", "letter", "engine", "paper", "cloud", "north"]


@pytest.fixture(scope="module")
def story() -> str:
    """A text of about 700 tokens, longer than the window."""
    rng = random.Random(5)
    return " ".join(rng.choice(_WORDS) for _ in range(700))


@pytest.fixture
async def backend() -> AsyncIterator[EdgeBackend]:
    async with running(EdgeConfig(path=str(gemma3()), kv_type="bf16", context=4096, slots=2)) as started:
        yield started


async def greedy(backend: EdgeBackend, text: str) -> tuple[list[int], int]:
    request = GenerateRequest(
        id="g",
        model="model",
        prompt=Text(text),
        max_tokens=_NEW_TOKENS,
        sampling=Sampling(temperature=0),
        logprobs=0,
        ignore_eos=True,
    )
    ids: list[int] = []
    cached = 0
    async for delta in backend.generate(request):
        ids += [entry.id for entry in delta.logprobs]
        cached = delta.usage.cached_tokens if delta.usage else cached
    return ids, cached


async def test_a_prefix_beyond_the_window_is_reused_and_changes_nothing(backend: EdgeBackend, story: str) -> None:
    branch = story[: len(story) * 5 // 6] + " and then the engine stopped because"
    fresh, _ = await greedy(backend, branch)
    await greedy(backend, story)
    reused, cached = await greedy(backend, branch)
    assert cached > 500
    assert reused == fresh
    model: Any = llama_cpp.Llama(
        str(gemma3()), n_ctx=2048, n_threads=2, flash_attn=True, type_k=_BF16, type_v=_BF16, swa_full=True, verbose=False
    )
    ids = model.tokenize(branch.encode(), add_bos=True, special=True)
    expected = []
    for token in model.generate(ids, temp=0.0, repeat_penalty=1.0):
        expected.append(token)
        if len(expected) == _NEW_TOKENS:
            break
    model.close()
    assert fresh == expected


async def test_a_sentencepiece_vocabulary_round_trips_any_text(backend: EdgeBackend) -> None:
    text = "  two spaces, é漢字 🧑‍🚀\n\ttab"
    tokens = await backend.tokenize(TokenizeRequest(model="model", prompt=Text(text), add_special=False))
    assert await backend.detokenize("model", tokens.ids) == text
    assert b"".join(tokens.pieces).decode() == text


async def test_embeddings_of_chat_models_do_not_depend_on_what_was_embedded_before(backend: EdgeBackend) -> None:
    async def embed(*texts: str) -> tuple[bytes, ...]:
        inputs = tuple(Text(text) for text in texts)
        return (await backend.embed(EmbedRequest(id="e", model="model", inputs=inputs))).vectors

    alone = (await embed("a b d"))[0]
    await embed("a b c", "something else")
    assert (await embed("a b d"))[0] == alone
