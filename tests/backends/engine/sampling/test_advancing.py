"""Steps with drafts: the same answers as without, in fewer steps, and the same distribution."""

import math
import random
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise, product

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from textbook import distribution, surprise

from backends.engine.sampling.advance import advance
from backends.engine.sampling.sampler import Chosen
from backends.engine.sampling.state import RowState
from backends.errors import BackendError, Failed, Rejected
from backends.text.constraint import Compiler, Constraint
from backends.types import Chat, GenerateRequest, JsonSchemaFormat, Sampling

VOCAB, EOS = 257, 256
TABLE = np.random.default_rng(7).normal(0, 2.5, (101, VOCAB)).astype(np.float32)
SCHEMA = {
    "type": "object",
    "properties": {"name": {"enum": ["alpha", "alphabet", "beta"]}, "size": {"type": "integer", "maximum": 999, "minimum": 0}},
    "required": ["name", "size"],
    "additionalProperties": False,
}
KINDS = [
    Sampling(temperature=0),
    Sampling(temperature=0, repetition_penalty=1.3, presence_penalty=0.4),
    Sampling(temperature=1.0, seed=3),
    Sampling(temperature=0.8, seed=4, top_p=0.8, frequency_penalty=0.6),
    Sampling(temperature=1.2, seed=5, top_k=30, min_p=0.02, repetition_penalty=1.1),
]


def model(text: Sequence[int]) -> np.ndarray:
    """Logits that depend on the last three tokens."""
    a, b, c = [0, 0, 0, *text][-3:]
    return TABLE[(a * 7 + b * 31 + c) % len(TABLE)]


def logits_for(texts: list[list[int]], drafts: list[list[int]]) -> torch.Tensor:
    rows = [model(text + draft[:i]) for text, draft in zip(texts, drafts, strict=True) for i in range(len(draft) + 1)]
    return torch.from_numpy(np.array(rows))


def step(texts: list[list[int]], states: list[RowState], drafts: list[list[int]]) -> list[list[Chosen]]:
    outcomes = advance(logits_for(texts, drafts), states, drafts, lambda token: b"%d" % token)
    found = []
    for text, outcome in zip(texts, outcomes, strict=True):
        assert isinstance(outcome, list), outcome
        text += [one.token for one in outcome]
        found.append(outcome)
    return found


def answer(make: Callable[[], RowState], length: int, draft_for: Callable[[list[int]], list[int]]) -> tuple[list[Chosen], int]:
    """Generate until the constraint is complete or `length` tokens are there; also returns the number of steps."""
    state, text, found, steps = make(), [1, 2], [], 0
    while len(found) < length and not (state.constraint is not None and state.constraint.is_stopped):
        (new,) = step([text], [state], [draft_for(text)[: length - len(found) - 1]])
        found += new
        steps += 1
        assert state.position == len(found) == len(text) - 2
    return found, steps


def compiled() -> Constraint:
    compiler = Compiler([bytes([i]) for i in range(256)] + [b"<|end|>"], {EOS}, [EOS], list)
    constraint = compiler.compile(
        GenerateRequest(id="r", model="m", prompt=Chat(messages=()), response_format=JsonSchemaFormat(schema=SCHEMA))
    )
    assert constraint is not None
    return constraint


@settings(deadline=None, max_examples=60)
@given(st.sampled_from(KINDS), st.integers(0, 2**32), st.integers(0, 3), st.booleans())
def test_drafts_change_no_token_and_no_log_probability(kind: Sampling, seed: int, index: int, is_scored: bool) -> None:
    def make() -> RowState:
        return RowState(kind, [1, 2], index, banned=(9,), logprobs=2 if is_scored else None)

    plain, _ = answer(make, 24, lambda text: [])
    whole = [1, 2] + [one.token for one in plain]
    dice = random.Random(seed)

    def guess(text: list[int]) -> list[int]:
        right = whole[len(text) : len(text) + dice.randrange(6)]
        return [token if dice.random() < 0.8 else dice.randrange(EOS) for token in right]

    drafted, _ = answer(make, 24, guess)
    assert drafted == plain


def test_right_drafts_save_steps() -> None:
    for kind in KINDS:
        plain, steps = answer(lambda kind=kind: RowState(kind, [1, 2], 0), 25, lambda text: [])
        assert steps == 25
        whole = [1, 2] + [one.token for one in plain]
        assert answer(lambda kind=kind: RowState(kind, [1, 2], 0), 25, lambda text, whole=whole: whole[len(text) :][:4])[1] == 5
        assert answer(lambda kind=kind: RowState(kind, [1, 2], 0), 25, lambda text: [9, 9, 9])[1] >= 20


@settings(deadline=None, max_examples=40)
@given(st.sampled_from(KINDS), st.integers(0, 2**32))
def test_drafts_change_nothing_under_a_constraint(kind: Sampling, seed: int) -> None:
    constraint = compiled()

    def make() -> RowState:
        return RowState(kind, [1, 2], 0, constraint=constraint.copy())

    plain, steps = answer(make, 80, lambda text: [])
    whole = [1, 2] + [one.token for one in plain]
    dice = random.Random(seed)

    def guess(text: list[int]) -> list[int]:
        right = [*whole, 65, 66, 67][len(text) : len(text) + dice.randrange(6)]
        return [token if dice.random() < 0.9 else dice.randrange(VOCAB) for token in right]

    drafted, fewer = answer(make, 80, guess)
    assert drafted == plain
    assert fewer < steps


def test_nothing_follows_a_complete_constraint() -> None:
    state = RowState(Sampling(temperature=0), [], 0, constraint=compiled())
    text = list(b'{"name": "beta", "size": 12')
    assert state.constraint is not None
    for token in text:
        state.accept(token)
    boosted = torch.full((4, VOCAB), -10.0)
    boosted[0, ord("}")] = boosted[1:, 65] = 5.0
    (outcome,) = advance(boosted, [state], [[ord("}"), 65, 65]], lambda token: b"")
    assert outcome == [Chosen(ord("}"))]
    assert state.constraint.is_stopped


def test_sequences_of_a_batch_advance_as_if_alone() -> None:
    dice = random.Random(1)
    kinds = [KINDS[i % len(KINDS)] for i in range(9)]
    expected = [
        [one.token for one in answer(lambda kind=kind, i=i: RowState(kind, [1, 2], i), 30, lambda text: [])[0]]
        for i, kind in enumerate(kinds)
    ]
    states = [RowState(kind, [1, 2], i) for i, kind in enumerate(kinds)]
    texts = [[1, 2] for _ in kinds]
    for _ in range(8):
        wholes = [[1, 2, *own] for own in expected]
        drafts = [
            whole[len(text) : len(text) + dice.randrange(3)] + [5] * dice.randrange(2)
            for text, whole in zip(texts, wholes, strict=True)
        ]
        step(texts, states, drafts)
    for text, own in zip(texts, expected, strict=True):
        assert text[2:] == own[: len(text) - 2]


@pytest.mark.parametrize(
    ("length", "sampling"),
    [
        (1, Sampling(temperature=1.0)),
        (2, Sampling(temperature=0.7, top_p=0.9, top_k=4)),
        (3, Sampling(temperature=1.0, min_p=0.03)),
    ],
    ids=["one", "two", "three"],
)
def test_checked_drafts_leave_the_joint_distribution_of_four_tokens_as_it_is(length: int, sampling: Sampling) -> None:
    """A Markov chain over four tokens, whose guess is always the most likely way to go on."""
    count, size = 20_000, 4
    table = np.random.default_rng(2).normal(0, 1.2, (size, size)).astype(np.float32)
    texts = [[0] for _ in range(count)]
    states = [RowState(sampling, [], 0) for _ in range(count)]
    for state, key in zip(states, range(count), strict=True):
        assert state.uniforms is not None
        state.uniforms = type(state.uniforms)((key, 0))
    while unfinished := [i for i, text in enumerate(texts) if len(text) < 5]:
        drafts = []
        for i in unfinished:
            draft = texts[i][-1:]
            for _ in range(min(length, 4 - len(texts[i]))):
                draft.append(int(table[draft[-1]].argmax()))
            drafts.append(draft[1:])
        rows = [token for i, draft in zip(unfinished, drafts, strict=True) for token in [texts[i][-1], *draft]]
        outcomes = advance(torch.from_numpy(table[rows]), [states[i] for i in unfinished], drafts, lambda token: b"")
        for i, outcome in zip(unfinished, outcomes, strict=True):
            assert isinstance(outcome, list)
            texts[i] += [one.token for one in outcome]
    after = [distribution(row, sampling) for row in table]
    expected = {
        way: math.prod(after[last].get(token, 0) for last, token in pairwise((0, *way)))
        for way in product(range(size), repeat=4)
    }
    numbers = {way: number for number, way in enumerate(expected)}
    seen = Counter(numbers[tuple(text[1:])] for text in texts)
    possible = {numbers[way]: probability for way, probability in expected.items() if probability > 0}
    assert set(seen) <= set(possible)
    assert surprise(seen, possible) > 1e-4


class _Broken(Constraint):
    """A grammar that cannot be followed any further."""

    def __init__(self) -> None:
        pass

    def mask(self) -> np.ndarray:
        raise Rejected("the constraint became too complex")


def test_an_error_ends_its_sequence_alone() -> None:
    kind = Sampling(temperature=0)
    states = [
        RowState(kind, [], 0),
        RowState(kind, [], 0, constraint=_Broken()),
        RowState(kind, [], 0),
        RowState(kind, [], 0),
    ]
    logits = logits_for([[1], [2], [3], [4]], [[8, 8], [8], [], [8]])
    logits[5, 3] = torch.nan
    clean = logits_for([[1], [4]], [[], []]).argmax(-1).tolist()
    outcomes = advance(logits, states, [[8, 8], [8], [], [8]], lambda token: b"")
    assert outcomes[0] == [Chosen(clean[0])]
    assert isinstance(outcomes[1], Rejected)
    assert isinstance(outcomes[2], Failed)
    assert outcomes[3] == [Chosen(clean[1])]
    assert states[1].position == states[2].position == 0


def test_an_error_behind_accepted_tokens_waits_for_its_turn() -> None:
    state = RowState(Sampling(temperature=0), [], 0)
    first = int(model([1]).argmax())
    logits = logits_for([[1]], [[first]])
    logits[1] = torch.nan
    assert advance(logits, [state], [[first]], lambda token: b"") == [[Chosen(first)]]
    (outcome,) = advance(logits[1:], [state], [[]], lambda token: b"")
    assert isinstance(outcome, BackendError)


def test_no_sequences_are_no_work() -> None:
    assert advance(torch.zeros(0, VOCAB), [], [], lambda token: b"") == []
