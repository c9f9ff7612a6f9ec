"""What a row gets from a batch: the same in any company, log probabilities of the model itself, an error of its own."""

import math
import random

import numpy as np
import pytest
import torch

from backends.engine.sampling.sampler import Chosen, sample
from backends.engine.sampling.score import score_prompt
from backends.engine.sampling.state import Row, RowState
from backends.errors import BackendError, Failed
from backends.types import Sampling

VOCAB = 1000
KINDS = [
    Sampling(temperature=0),
    Sampling(temperature=0, repetition_penalty=1.2),
    Sampling(temperature=0, logit_bias={3: 5.0}),
    Sampling(temperature=1.0, seed=1),
    Sampling(temperature=0.7, seed=2, top_k=20, frequency_penalty=0.3),
    Sampling(temperature=1.0, seed=3, top_p=0.9),
    Sampling(temperature=3.0, seed=4, top_p=0.95),
    Sampling(temperature=1.0, seed=5, min_p=0.05),
    Sampling(temperature=1.0, seed=6, top_k=200),
]


def piece(token: int) -> bytes:
    return b"<%d>" % token


def logits_of(rows: int, seed: int = 0) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(seed).normal(0, 3, (rows, VOCAB)).astype(np.float32))


def chosen(logits: torch.Tensor, rows: list[Row]) -> list[Chosen]:
    found = sample(logits.clone(), rows, piece)
    assert all(isinstance(one, Chosen) for one in found)
    return [one for one in found if isinstance(one, Chosen)]


def test_a_row_gets_the_same_token_alone_and_in_any_batch() -> None:
    states = [RowState(kind, [1, 2, 3], index, logprobs=index or None) for kind in KINDS for index in range(3)]
    for state in states:
        for token in (7, 8, 7):
            state.accept(token)
    logits = logits_of(len(states))
    alone = [chosen(logits[at : at + 1], [Row(0, state)])[0] for at, state in enumerate(states)]
    rows = [Row(at, state) for at, state in enumerate(states)]
    assert [one.token for one in chosen(logits, rows)] == [one.token for one in alone]
    for seed in range(5):
        some = random.Random(seed).sample(rows, 10)
        assert [one.token for one in chosen(logits, some)] == [alone[row.at].token for row in some]


def test_a_state_made_anew_goes_on_as_the_old_one() -> None:
    for kind in KINDS:
        logits = logits_of(12)
        first = RowState(kind, [4, 5], 1)
        tokens = []
        for step in range(12):
            tokens.append(chosen(logits[step : step + 1], [Row(0, first)])[0].token)
            first.accept(tokens[-1])
        second = RowState(kind, [4, 5], 1)
        for token in tokens[:6]:
            second.accept(token)
        for step in range(6, 12):
            assert chosen(logits[step : step + 1], [Row(0, second)])[0].token == tokens[step]
            second.accept(tokens[step])


def test_choices_of_one_seed_differ_and_so_do_requests_without_a_seed() -> None:
    logits = torch.zeros(1, VOCAB)

    def answer(seed: int | None, index: int) -> list[int]:
        state = RowState(Sampling(seed=seed), [], index)
        return [chosen(logits, [Row(0, state, range(i))])[0].token for i in range(6)]

    answers = [answer(5, 0), answer(5, 1), answer(6, 0), answer(None, 0), answer(None, 0)]
    assert len({tuple(each) for each in answers}) == 5
    assert answer(5, 1) == answers[1]


def test_greedy_takes_the_lowest_of_equal_ids_and_leaves_the_logits_alone() -> None:
    logits = torch.zeros(2, VOCAB)
    logits[0, [300, 20, 999]] = 4.0
    logits[1, [999, 998]] = 1.0
    before = logits.clone()
    state = RowState(Sampling(temperature=0), [], 0)
    assert sample(logits, [Row(0, state), Row(1, state)], piece) == [Chosen(20), Chosen(998)]
    assert torch.equal(logits, before)


def test_log_probabilities_are_those_of_the_model_before_anything_was_changed() -> None:
    logits = logits_of(3)
    exact = logits.double().log_softmax(-1)
    sampling = Sampling(temperature=0.5, seed=1, logit_bias={9: 50.0}, top_k=2, repetition_penalty=1.5)
    plain = RowState(Sampling(temperature=0), [], 0, logprobs=0)
    bent = RowState(sampling, [1, 2], 0, banned=(5,), logprobs=4)
    silent = RowState(sampling, [1, 2], 0)
    first, second, third = chosen(logits, [Row(0, plain), Row(1, bent), Row(2, silent)])
    assert first.scored is not None
    assert second.scored is not None
    assert third.scored is None
    assert first.scored.top == ()
    assert first.scored.logprob == pytest.approx(float(exact[0].max()), abs=1e-5)
    assert second.token == 9
    assert second.scored.logprob == pytest.approx(float(exact[1, 9]), abs=1e-5)
    best = exact[1].topk(4)
    assert [one.id for one in second.scored.top] == best.indices.tolist()
    assert [one.logprob for one in second.scored.top] == pytest.approx(best.values.tolist(), abs=1e-5)
    assert [one.piece for one in second.scored.top] == [piece(token) for token in best.indices.tolist()]


def test_an_impossible_token_has_the_lowest_log_probability_that_json_can_hold() -> None:
    logits = torch.zeros(1, 4)
    logits[0, 2] = -torch.inf
    (scored,) = score_prompt(logits, [2], 4, piece)
    assert scored.logprob == -9999.0
    assert [one.id for one in scored.top] == [0, 1, 3, 2]
    assert scored.top[3].logprob == -9999.0


@pytest.mark.parametrize("count", [0, 1, 63, 64, 65, 130])
def test_a_prompt_of_any_length_is_scored_token_by_token(count: int) -> None:
    logits = logits_of(count + 1)
    exact = logits.double().log_softmax(-1)
    following = [(7 * i) % VOCAB for i in range(count)]
    scores = score_prompt(logits, following, 2, piece)
    assert [one.logprob for one in scores] == pytest.approx([float(exact[i, t]) for i, t in enumerate(following)], abs=1e-4)
    assert [[other.id for other in one.top] for one in scores] == exact[:count].topk(2).indices.tolist()


@pytest.mark.parametrize("damage", [math.nan, math.inf])
@pytest.mark.parametrize("kind", KINDS, ids=range(len(KINDS)))
def test_logits_that_are_no_numbers_break_their_row_alone(damage: float, kind: Sampling) -> None:
    logits = logits_of(3)
    logits[1, 500] = damage
    states = [RowState(kind, [1], index, logprobs=1) for index in range(3)]
    found = sample(logits.clone(), [Row(at, state) for at, state in enumerate(states)], piece)
    assert isinstance(found[1], Failed)
    assert "finite" in found[1].message
    for at in (0, 2):
        assert isinstance(found[at], Chosen)
        assert found[at] == chosen(logits, [Row(at, states[at])])[0]


def test_a_row_without_any_allowed_token_is_an_error() -> None:
    mask = np.zeros(32, np.uint32)
    mask[0] = 1 << 5
    for kind in KINDS:
        state = RowState(kind, [], 0, banned=(5,))
        (found,) = sample(logits_of(1), [Row(0, state, mask=mask)], piece)
        assert isinstance(found, BackendError)
        assert "no token may follow" in found.message
