"""A SentencePiece model with a sliding window (Gemma 3, 512 tokens): prefix reuse must not lose what the window needs."""

import random
from collections.abc import AsyncIterator
from typing import Any

import llama_cpp
import pytest

from backends.types import EmbedRequest, GenerateRequest, Sampling, Text, TokenizeRequest, Tokens
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
    async with running(EdgeConfig(path=str(gemma3()), context=4096, slots=2)) as started:
        yield started


async def greedy(backend: EdgeBackend, ids: list[int]) -> tuple[list[int], int]:
    request = GenerateRequest(
        id="g",
        model="model",
        prompt=Tokens(tuple(ids)),
        max_tokens=_NEW_TOKENS,
        sampling=Sampling(temperature=0),
        logprobs=0,
        ignore_eos=True,
    )
    generated: list[int] = []
    cached = 0
    async for delta in backend.generate(request):
        generated += [entry.id for entry in delta.logprobs]
        cached = delta.usage.cached_tokens if delta.usage else cached
    return generated, cached


def alone(prompts: list[list[int]]) -> list[list[int]]:
    """What llama-cpp-python generates for each prompt from an empty cache."""
    model: Any = llama_cpp.Llama(
        str(gemma3()), n_ctx=2048, n_threads=2, flash_attn=True, type_k=_BF16, swa_full=True, verbose=False
    )
    answers = []
    for prompt in prompts:
        model.reset()
        stream = model.generate(prompt, temp=0.0, repeat_penalty=1.0, logits_processor=_no_end(model))
        answers.append([token for token, _ in zip(stream, range(_NEW_TOKENS), strict=False)])
    model.close()
    return answers


def _no_end(model: Any) -> Any:
    vocabulary = model._model.vocab
    ends = [token for token in range(model.n_vocab()) if llama_cpp.llama_vocab_is_eog(vocabulary, token)]

    def forbid(_: Any, scores: Any) -> Any:
        scores[ends] = -float("inf")
        return scores

    return llama_cpp.LogitsProcessorList([forbid])


async def test_reuse_beyond_the_window_changes_nothing(backend: EdgeBackend, story: str) -> None:
    """The next turn goes on from the snapshot; a branch off before its end lacks part of the window, and is computed."""
    ids = list((await backend.tokenize(TokenizeRequest(model="model", prompt=Text(story)))).ids)
    assert len(ids) > 600
    branch = [*ids[: len(ids) * 5 // 6], *ids[20:40]]
    first, _ = await greedy(backend, ids)
    turn = [*ids, *first, *ids[50:60]]
    branched, _ = await greedy(backend, branch)
    continued, cached = await greedy(backend, turn)
    assert cached >= len(ids)
    assert [first, branched, continued] == alone([ids, branch, turn])


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
