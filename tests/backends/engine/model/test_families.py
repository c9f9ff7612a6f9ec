"""Every family computes what transformers computes with the same weights, in float32."""

from collections.abc import Callable

import pytest
import torch

from tests.backends.engine.model.conftest import Pair
from tests.backends.engine.model.harness import load
from tests.backends.engine.model.random_models import KINDS, WINDOW, reference_answer, reference_logits, text

NEW_TOKENS = 256
kinds = pytest.mark.parametrize("kind", KINDS)


def assert_near(found: torch.Tensor, expected: torch.Tensor) -> None:
    """As near as float32 gets.

    transformers computes the angles of positions in float32, and a random model enlarges a rounding a thousand times.
    """
    off = (found - expected).abs()
    assert float(off.mean()) < 5e-5
    assert float(off.max()) < 1e-3


@kinds
def test_logits_of_a_prompt_are_those_of_transformers(random_model: Callable[[str], Pair], kind: str) -> None:
    loaded, model = random_model(kind)
    tokens = text(9 * WINDOW)
    expected = reference_logits(model, tokens)
    found = loaded.engine(context=512, slots=2).all_logits(tokens)
    assert float(expected.std()) > 0.5, "the reference says nothing"
    assert_near(found, expected)


@kinds
def test_logits_of_decoded_tokens_are_those_of_transformers(random_model: Callable[[str], Pair], kind: str) -> None:
    loaded, model = random_model(kind)
    tokens = text(6 * WINDOW, seed=2)
    found = loaded.engine(context=512, slots=2).all_logits(tokens, num_prompt=WINDOW - 3)
    assert_near(found, reference_logits(model, tokens))


@kinds
def test_the_most_likely_tokens_are_those_of_transformers(random_model: Callable[[str], Pair], kind: str) -> None:
    loaded, model = random_model(kind)
    prompt = text(40, seed=6)
    expected = reference_answer(model, prompt, NEW_TOKENS)
    assert len(set(expected)) > 20, "an answer that repeats itself says little"
    (found,) = loaded.engine(context=512, slots=2).generate(prompt, new=NEW_TOKENS)
    assert found == expected


@pytest.mark.parametrize("kind", ["mistral", "gemma3"])
@pytest.mark.parametrize("length", [WINDOW - 1, WINDOW, WINDOW + 1, 2 * WINDOW + 1])
@pytest.mark.parametrize("block", [4, 8, 100])
def test_a_window_begins_where_it_should(random_model: Callable[[str], Pair], kind: str, length: int, block: int) -> None:
    loaded, model = random_model(kind)
    tokens = text(length + 1, seed=length)
    found = loaded.engine(context=512, slots=2, block=block).all_logits(tokens, num_prompt=length)
    assert_near(found, reference_logits(model, tokens))


@pytest.mark.parametrize("kind", ["mistral", "gemma3", "qwen2"])
def test_far_behind_the_window_blocks_were_given_back(random_model: Callable[[str], Pair], kind: str) -> None:
    loaded, model = random_model(kind)
    engine, tokens = loaded.engine(context=1024, slots=1, draft_tokens=0), text(700, seed=4)
    expected = reference_logits(model, tokens)
    (sequence,) = engine.begin(tokens[:650], new=100)
    while sequence.num_generated < 50:
        engine.step()
    windowed = [g for g, pool in enumerate(engine.engine.pools) if pool.window]
    assert windowed
    for g in windowed:
        table = sequence.holding.tables[g]
        assert sum(block >= 0 for block in table) <= -(-WINDOW // 8) + 2 < 10 < table.count(-1)
    engine.run()
    found = loaded.engine(context=1024, slots=1, step_tokens=128).all_logits(tokens, num_prompt=650)
    assert_near(found, expected)


def test_a_model_in_bfloat16_is_near_the_one_in_float32(random_model: Callable[[str], Pair]) -> None:
    loaded, model = random_model("llama")
    tokens = text(200, seed=8)
    expected = torch.log_softmax(reference_logits(model, tokens), -1)
    engine = load(loaded.path, prefill="bf16", decode="bf16", head="bf16").engine(context=512, slots=2)
    found = torch.log_softmax(engine.all_logits(tokens, num_prompt=150), -1)
    divergence = (expected.exp() * (expected - found)).sum(-1)
    assert float(divergence.mean()) < 2e-3
    assert float(divergence.max()) < 3e-2
