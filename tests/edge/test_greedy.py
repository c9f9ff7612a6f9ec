"""Greedy output is that of llama-cpp-python alone with the same cache types: batched or not, cached or not.

llama.cpp computes a row the same way whatever shares its batch as long as one attention kernel serves all shapes; see
edge/NOTES.md, which says for which KV types that is so.
"""

import asyncio
import random
from collections.abc import AsyncIterator
from typing import Any

import llama_cpp
import pytest

from backends.types import Chat, GenerateRequest, Message, Prompt, Sampling, Text, TokenizeRequest, Tokens
from edge.config import EdgeConfig, KvType
from edge.engine import EdgeBackend
from tests.models import SMOLLM2, running

_NEW_TOKENS = 40
_BF16 = 30  # GGML_TYPE_BF16, which the binding does not name
_WORDS = ["river", "stone", "light", "over", "under", "quick", "green", "town", "letter", "engine", "paper", "cloud", "north"]


def prompts() -> list[str]:
    """Short questions, and texts long enough to be prefilled in several chunks and to fill more than one page of the cache."""
    rng = random.Random(7)
    questions = ["What is the capital of France?", "Write a haiku about the sea.", "Who wrote Hamlet?", "What is 12 times 13?"]
    return [*questions, *(" ".join(rng.choice(_WORDS) for _ in range(n)) for n in (60, 180, 420))]


@pytest.fixture(scope="module")
def reference() -> dict[str, list[int]]:
    """What llama-cpp-python generates for each prompt, one after another, each from an empty cache."""
    model: Any = llama_cpp.Llama(str(SMOLLM2), n_ctx=2048, n_threads=2, flash_attn=True, type_k=_BF16, verbose=False)
    answers = {}
    for prompt in prompts():
        model.reset()
        ids = model.tokenize(_chatml(prompt).encode(), add_bos=False, special=True)
        answers[prompt] = []
        for token in model.generate(ids, temp=0.0, repeat_penalty=1.0):
            if llama_cpp.llama_vocab_is_eog(model._model.vocab, token) or len(answers[prompt]) == _NEW_TOKENS:
                break
            answers[prompt].append(token)
    model.close()
    return answers


@pytest.fixture
async def backend() -> AsyncIterator[EdgeBackend]:
    async with running(EdgeConfig(path=str(SMOLLM2), prefill_chunk=96, slots=4)) as started:
        yield started


def _chatml(text: str) -> str:
    system = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"
    return f"<|im_start|>system\n{system}<|im_end|>\n<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n"


async def generate(backend: EdgeBackend, prompt: Prompt) -> tuple[list[int], int]:
    """Return the generated token ids and how many prompt tokens came from the cache."""
    request = GenerateRequest(
        id="greedy", model="model", prompt=prompt, max_tokens=_NEW_TOKENS, sampling=Sampling(temperature=0), logprobs=0
    )
    ids: list[int] = []
    cached = 0
    async for delta in backend.generate(request):
        ids += [entry.id for entry in delta.logprobs]
        cached = delta.usage.cached_tokens if delta.usage else cached
    return ids, cached


def chat(text: str) -> Chat:
    return Chat(messages=(Message(role="user", content=text),))


async def test_one_after_another_and_again_from_the_cache(backend: EdgeBackend, reference: dict[str, list[int]]) -> None:
    for text in prompts():
        fresh, _ = await generate(backend, chat(text))
        assert fresh == reference[text]
        again, cached = await generate(backend, chat(text))
        assert cached > 0
        assert again == reference[text]


async def test_all_at_once(backend: EdgeBackend, reference: dict[str, list[int]]) -> None:
    answers = await asyncio.gather(*(generate(backend, chat(text)) for text in prompts()))
    assert [ids for ids, _ in answers] == [reference[text] for text in prompts()]


async def test_beside_others_that_come_and_go(backend: EdgeBackend, reference: dict[str, list[int]]) -> None:
    rng = random.Random(3)

    async def disturb() -> None:
        for _ in range(6):
            request = GenerateRequest(
                id="noise", model="model", prompt=Text(" ".join(rng.choices(_WORDS, k=rng.randint(1, 150))))
            )
            stream = backend.generate(request)
            for _ in range(rng.randint(1, 5)):
                await anext(stream)
            await stream.aclose()

    noise = asyncio.gather(disturb(), disturb())
    for text in prompts():
        assert (await generate(backend, chat(text)))[0] == reference[text]
    await noise


@pytest.mark.parametrize("keys", ["auto", "f16"])
async def test_after_preemption_every_token_still_follows_its_own_history(keys: KvType) -> None:
    """Recomputed keys land in other cells, so sums run in another order: tokens may differ where two were nearly tied.

    Whoever attended to a wrong history would choose tokens far from the best; each must be within rounding of it.
    """
    async with running(EdgeConfig(path=str(SMOLLM2), cache_type_k=keys, context=768, slots=8, kv_unified=True)) as small:
        answers = await asyncio.gather(*(generate(small, chat(text)) for text in prompts()))
        assert (await small.health()).counters["preemptions_total"] > 0
    model: Any = llama_cpp.Llama(str(SMOLLM2), n_ctx=2048, n_threads=2, logits_all=True, verbose=False)
    for text, (ids, _) in zip(prompts(), answers, strict=True):
        prompt = model.tokenize(_chatml(text).encode(), add_bos=False, special=True)
        model.reset()
        model.eval([*prompt, *ids])
        rows = model.scores[len(prompt) - 1 : len(prompt) + len(ids) - 1]
        behind = rows.max(axis=1) - rows[range(len(ids)), ids]
        assert behind.max() < 1.5
    model.close()


async def test_a_prompt_of_token_ids_is_taken_as_it_is(backend: EdgeBackend, reference: dict[str, list[int]]) -> None:
    text = prompts()[0]
    ids = (await backend.tokenize(TokenizeRequest(model="model", prompt=chat(text)))).ids
    assert (await generate(backend, Tokens(ids)))[0] == reference[text]
