"""What a request is answered does not depend on what else happens: batches, chunks, caches, preemption, forks, speculation.

In float32 that is tested token for token; torch's products there differ in the last bits with the number of rows, so a token
that all but tied with the best may take its place. With weights in 4 or 8 bits each row of a product has the same bits
whatever else is in the batch, so there is no such excuse.
"""

from collections.abc import Callable, Sequence
from functools import cache
from random import Random
from typing import Any

import pytest
import torch

from backends.types import Sampling
from kernels.ops import open_device
from tests.backends.engine.model.conftest import Pair
from tests.backends.engine.model.harness import EXACT, Loaded, answer, load
from tests.backends.engine.model.random_models import WINDOW, text

Models = Callable[[str, str], Loaded]

NEW = 40
SETTINGS: dict[str, Any] = {"context": 512, "slots": 8, "draft_tokens": 0}
PROMPTS = [text(length, seed=length) for length in (1, 5, 8, 17, WINDOW + 1, 63, 90, 150)]
DICE = Sampling(temperature=0.8, top_p=0.95, seed=11)

PRECISIONS: dict[str, dict[str, Any]] = {
    "fp32": EXACT,
    "bf16+int4": {"prefill": "bf16" if open_device(threads=1).has_fast_bf16 else "fp32", "decode": "int4-g32"},
    "int8+int4": {"prefill": "int8", "decode": "int4-g32"},
    "int8, int8 cache": {"prefill": "int8", "decode": "int8", "kv": "int8"},
}
kinds = pytest.mark.parametrize("kind", ["llama", "mistral", "gemma3"])
precisions = pytest.mark.parametrize("precision", PRECISIONS)


@pytest.fixture(scope="module")
def models(random_model: Callable[[str], Pair]) -> Models:
    """A model of a kind, in a precision."""

    @cache
    def make(kind: str, precision: str) -> Loaded:
        return load(random_model(kind)[0].path, **PRECISIONS[precision])

    return make


def assert_same(loaded: Loaded, prompt: list[int], found: list[int], expected: list[int]) -> None:
    """The same tokens, but for one that all but ties with the best (in float32, where bits depend on the batch)."""
    if found == expected:
        return
    assert loaded.settings == EXACT
    assert len(found) == len(expected)
    place = next(i for i, (one, other) in enumerate(zip(found, expected, strict=True)) if one != other)
    logits = loaded.engine(**SETTINGS).all_logits(prompt + expected[:place])[-1]
    assert abs(float(logits[found[place]] - logits[expected[place]])) < 1e-3


@pytest.fixture(scope="module")
def alone(models: Models) -> Callable[[str, str, int], list[int]]:
    """The answer to a prompt by an engine that has nothing else to do, without chunks, caches and speculation."""

    @cache
    def answered(kind: str, precision: str, prompt: int) -> list[int]:
        (found,) = models(kind, precision).engine(**SETTINGS).generate(PROMPTS[prompt], new=NEW)
        assert len(found) == NEW
        return found

    return answered


Alone = Callable[[str, str, int], list[int]]


@kinds
@precisions
def test_batched_equals_alone(models: Models, alone: Alone, kind: str, precision: str) -> None:
    loaded = models(kind, precision)
    engine = loaded.engine(**SETTINGS)
    together = engine.generate(*PROMPTS, new=NEW)
    assert engine.most_running == len(PROMPTS)
    for number, found in enumerate(together):
        assert_same(loaded, PROMPTS[number], found, alone(kind, precision, number))


@kinds
@precisions
@pytest.mark.parametrize("chunk", [1, 7, 128])
def test_chunked_equals_whole(models: Models, alone: Alone, kind: str, precision: str, chunk: int) -> None:
    loaded = models(kind, precision)
    engine = loaded.engine(**SETTINGS | {"prefill_chunk": chunk})
    (other,) = engine.begin(PROMPTS[2], new=400)
    while not other.num_generated:
        engine.step()
    (sequence,) = engine.begin(PROMPTS[-1], new=NEW)
    steps = 0
    while not sequence.num_generated:
        engine.step()
        steps += 1
    assert steps >= len(PROMPTS[-1]) // chunk
    while not sequence.finished:
        engine.step()
    assert not other.finished
    assert_same(loaded, PROMPTS[-1], answer(sequence), alone(kind, precision, len(PROMPTS) - 1))


@kinds
@precisions
def test_cached_equals_fresh(models: Models, alone: Alone, kind: str, precision: str) -> None:
    loaded = models(kind, precision)
    engine = loaded.engine(**SETTINGS)
    whole = PROMPTS[-1]
    engine.generate(whole[:100] + PROMPTS[3], new=5)
    for hit in (96, 144):
        (sequence,) = engine.begin(whole, new=NEW)
        engine.run()
        assert sequence.cached == hit
        assert_same(loaded, whole, answer(sequence), alone(kind, precision, len(PROMPTS) - 1))


@kinds
@pytest.mark.parametrize("precision", ["fp32", "bf16+int4", "int8+int4"])
def test_an_answer_that_becomes_a_prompt_equals_a_fresh_one(models: Models, kind: str, precision: str) -> None:
    """What the decode weights computed serves no prompt, unless these are the weights for prompts too."""
    loaded, prompt = models(kind, precision), PROMPTS[5]
    engine = loaded.engine(**SETTINGS)
    (said,) = engine.generate(prompt, new=64)
    (sequence,) = engine.begin([*prompt, *said, 3], new=NEW)
    engine.run()
    (expected,) = loaded.engine(**SETTINGS).generate([*prompt, *said, 3], new=NEW)
    assert_same(loaded, [*prompt, *said, 3], answer(sequence), expected)
    assert sequence.cached == (len(prompt) + 64) // 8 * 8 if loaded.precisions.prefill is None else len(prompt) // 8 * 8


@kinds
@precisions
def test_who_waits_for_a_prefix_gets_the_same(models: Models, kind: str, precision: str) -> None:
    loaded = models(kind, precision)
    tails = [PROMPTS[-1] + text(n, seed=n) for n in (3, 20, 40)]
    together = loaded.engine(**SETTINGS).generate(*tails, new=10)
    for tail, found in zip(tails, together, strict=True):
        (expected,) = loaded.engine(**SETTINGS).generate(tail, new=10)
        assert_same(loaded, tail, found, expected)


@kinds
@precisions
@pytest.mark.parametrize("length", [WINDOW - 1, 64, 65, 150])
def test_choices_that_share_a_prompt_equal_separate_requests(models: Models, kind: str, precision: str, length: int) -> None:
    loaded, prompt = models(kind, precision), text(length, seed=5)
    engine = loaded.engine(**SETTINGS)
    forked = engine.begin(prompt, new=30, choices=range(3), sampling=DICE)
    engine.run()
    assert [sequence.cached for sequence in forked] == [0, length - 1, length - 1]
    found = [answer(sequence) for sequence in forked]
    assert len({tuple(tokens) for tokens in found}) == 3
    separate = [loaded.engine(**SETTINGS).generate(prompt, new=30, choices=[i], sampling=DICE)[0] for i in range(3)]
    assert found == separate


@kinds
@precisions
def test_preempted_equals_not(models: Models, alone: Alone, kind: str, precision: str) -> None:
    loaded = models(kind, precision)
    engine = loaded.engine(**SETTINGS | {"kv_tokens": 200 if kind == "mistral" else 320})  # a window needs less
    found = engine.generate(*PROMPTS, new=NEW)
    assert engine.scheduler.preemptions > 0
    assert engine.loop.figures.replayed_tokens > 0
    for number, tokens in enumerate(found):
        assert_same(loaded, PROMPTS[number], tokens, alone(kind, precision, number))


class Guesses:
    """In place of a drafter: what is going to be answered, as far as it was told, with a mistake in every other draft."""

    def __init__(self, known: list[int]) -> None:
        self._known, self._dice = known, Random(len(known))

    def propose(self, tokens: list[int], room: int, forced: Sequence[int] = ()) -> list[int]:
        draft = self._known[len(tokens) : len(tokens) + min(room, self._dice.randint(0, 8))]
        if draft and self._dice.random() < 0.5:
            draft[self._dice.randrange(len(draft))] ^= 1
        return draft

    def learn(self, drafted: int, accepted: int) -> None:
        pass


@kinds
@precisions
@pytest.mark.parametrize("sampling", [Sampling(temperature=0), DICE], ids=["greedy", "drawn"])
def test_guesses_change_nothing(models: Models, kind: str, precision: str, sampling: Sampling) -> None:
    loaded = models(kind, precision)
    engine, begun = loaded.engine(**SETTINGS | {"draft_tokens": 8, "draft_below": 4}), []
    for prompt in PROMPTS[3:7]:
        (expected,) = loaded.engine(**SETTINGS).generate(prompt, new=80, sampling=sampling)
        begun += [(sequence, expected) for sequence in engine.begin(prompt, 80, sampling=sampling)]
        begun[-1][0].work.drafter = Guesses(prompt + expected)
    engine.run()
    figures = engine.loop.figures
    assert figures.drafted_tokens > figures.accepted_tokens > 50
    for prompt, (sequence, expected) in zip(PROMPTS[3:7], begun, strict=True):
        if sampling == DICE:
            assert answer(sequence) == expected
        else:
            assert_same(loaded, prompt, answer(sequence), expected)


@precisions
def test_speculation_changes_nothing(models: Models, precision: str) -> None:
    loaded = models("gemma3", precision)
    # What the model said once it will say again when it is asked to go on in the same words.
    (said,) = loaded.engine(**SETTINGS).generate(PROMPTS[3], new=60)
    for prompt in ([*PROMPTS[3], *said, *PROMPTS[3], *said[:20]], said[-12:] * 4):
        (expected,) = loaded.engine(**SETTINGS).generate(prompt, new=100)
        engine = loaded.engine(**SETTINGS | {"draft_tokens": 8})
        (found,) = engine.generate(prompt, new=100)
        assert engine.loop.figures.accepted_tokens > 0
        assert_same(loaded, prompt, found, expected)


@precisions
@pytest.mark.parametrize(("kind", "kv_tokens"), [("llama", 240), ("gemma3", 200), ("mistral", 96)])
def test_everything_at_once_changes_nothing(models: Models, alone: Alone, precision: str, kind: str, kv_tokens: int) -> None:
    """Preemption, chunks, cached prefixes, drafts and forks, with sequences that come and go."""
    loaded = models(kind, precision)
    drafting = {"draft_tokens": 8, "draft_below": 8}
    engine = loaded.engine(**SETTINGS | drafting | {"kv_tokens": kv_tokens, "prefill_chunk": 16, "slots": 6})
    begun = []
    for number in [7, 0, 5, 3, 6, 7, 2, 4, 1, 6]:
        (sequence,) = engine.begin(PROMPTS[number], new=NEW)
        sequence.work.drafter = Guesses(PROMPTS[number] + alone(kind, precision, number))
        begun.append((number, sequence))
        passing = engine.begin(PROMPTS[number], new=7, choices=[1, 2], sampling=DICE)
        for _ in range(3):
            engine.step()
        engine.scheduler.finish(passing[number % 2])
    engine.run()
    assert engine.scheduler.preemptions > 0 or kind == "mistral"  # whose windows need so little that it is a matter of luck
    assert engine.loop.figures.cached_tokens > 0
    assert engine.loop.figures.accepted_tokens > 0
    for number, sequence in begun:
        assert_same(loaded, PROMPTS[number], answer(sequence), alone(kind, precision, number))


@precisions
def test_a_decoded_row_has_the_same_bits_alone_and_beside_others(models: Models, precision: str) -> None:
    loaded, rows = models("gemma3", precision), []
    for number in range(len(PROMPTS)):
        engine = loaded.engine(**SETTINGS)
        batches: list[list[list[int]]] = [PROMPTS[: number + 1], [PROMPTS[number]]]
        logits = [newest_logits(engine, prompts) for prompts in batches[: 1 if number == 0 else 2]]
        rows.append(float((logits[0][-1] - logits[-1][-1]).abs().max()))
    assert max(rows) < (2e-4 if precision == "fp32" else 1e-30)


def newest_logits(engine: Any, prompts: list[list[int]]) -> torch.Tensor:
    """Prefill prompts one after the other, then decode a token of each in one batch; [prompts, vocab] float32."""
    sequences = []
    for prompt in prompts:
        (sequence,) = engine.begin(prompt, new=50)
        while not sequence.num_generated:
            engine.step()
        sequences.append(sequence)
    for sequence, prompt in zip(sequences, prompts, strict=True):
        sequence.tokens[len(prompt) :] = [1]
        sequence.num_computed = len(prompt)
    with torch.inference_mode():
        logits: torch.Tensor = engine.engine.runner.decode(sequences).clone()
    for sequence in sequences:
        engine.scheduler.finish(sequence, keep=False)
    return logits
