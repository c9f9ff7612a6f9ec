"""Choosing tokens in the interpreter, against the definition and against the sampler that runs on the CPU."""

from dataclasses import dataclass

import pytest
import torch

from backends.engine.sampling.sampler import Chosen, sample
from backends.engine.sampling.state import Row, RowState
from backends.types import Sampling
from kernels import choice
from kernels.gpu.sampling import choose, greedy, score

F64 = torch.float64


@dataclass
class Settings:
    """The columns of a batch."""

    temperature: torch.Tensor
    top_k: torch.Tensor
    top_p: torch.Tensor
    min_p: torch.Tensor
    uniform: torch.Tensor

    def columns(self, rows: slice = slice(None)) -> tuple[torch.Tensor, ...]:
        return tuple(
            column[rows].contiguous() for column in (self.temperature, self.top_k, self.top_p, self.min_p, self.uniform)
        )


def settings_of(
    rows: int, temperature: float = 1.0, top_k: int = 0, top_p: float = 1.0, min_p: float = 0.0, uniform: float | None = None
) -> Settings:
    drawn = torch.rand(rows, dtype=F64) if uniform is None else torch.full((rows,), uniform, dtype=F64)
    full = [torch.full((rows,), each, dtype=F64) for each in (temperature, top_p, min_p)]
    return Settings(full[0], torch.full((rows,), top_k), full[1], full[2], drawn)


def check(logits: torch.Tensor, settings: Settings) -> torch.Tensor:
    found = choose(logits, *settings.columns())
    assert found.dtype == torch.int64
    assert found.tolist() == choice.choose(logits, *settings.columns()).tolist()
    return found


def peaked(rows: int, vocab: int, width: float = 3.0) -> torch.Tensor:
    """Random rows with NaN between them."""
    wide = torch.full((rows, vocab + 3), torch.nan)
    wide[:, :vocab] = torch.randn(rows, vocab) * width
    return wide[:, :vocab]


FILTERS = [
    {},
    {"temperature": 0.6},
    {"top_k": 1},
    {"top_k": 50, "temperature": 0.7},
    {"top_p": 0.9},
    {"top_p": 0.0},
    {"top_p": 0.95, "temperature": 1.7},
    {"min_p": 0.05},
    {"top_k": 40, "top_p": 0.8, "min_p": 0.02, "temperature": 0.8},
    {"top_k": 100_000, "top_p": 0.5},
    {"temperature": 1e-40},
    {"temperature": 1e-40, "top_p": 0.9},
    {"temperature": 0.0},
    {"temperature": 0.0, "top_k": 5},
]


@pytest.mark.parametrize("filters", FILTERS, ids=str)
@pytest.mark.parametrize("vocab", [1, 17, 1500])
def test_a_choice_is_what_it_is_defined_as(vocab: int, filters: dict[str, float]) -> None:
    check(peaked(1, vocab), settings_of(1, **filters))


@pytest.mark.parametrize(
    "filters",
    [{"top_p": 0.9}, {"top_p": 0.5, "min_p": 0.3}, {"top_k": 150}, {"top_k": 200, "top_p": 0.9}, {"min_p": 1e-4}],
    ids=str,
)
@pytest.mark.parametrize("width", [0.001, 1.0])
def test_filters_that_keep_more_than_the_candidates(width: float, filters: dict[str, float]) -> None:
    check(peaked(1, 300, width), settings_of(1, **filters))


def test_rows_of_every_kind_in_one_batch_and_alone() -> None:
    some = [*FILTERS[::3], {"top_p": 0.97, "temperature": 3.0}]
    logits = peaked(len(some), 300, 2.0)
    rows = [settings_of(1, **filters) for filters in some]
    columns = zip(*(row.columns() for row in rows), strict=True)
    settings = Settings(*(torch.cat(list(column)) for column in columns))
    among = check(logits, settings)
    for row in range(len(rows)):
        one = slice(row, row + 1)
        assert choose(logits[one], *settings.columns(one)).tolist() == among[one].tolist()


@pytest.mark.parametrize("uniform", [0.25, 1 - 2.0**-53])
@pytest.mark.parametrize("filters", [{}, {"top_k": 7}, {"top_p": 0.25, "top_k": 64}, {"min_p": 1.0}], ids=str)
@pytest.mark.parametrize("vocab", [60, 300])
def test_equal_logits_count_in_the_order_of_their_ids(vocab: int, filters: dict[str, float], uniform: float) -> None:
    """Among 300 equal logits there are no candidates; zeros of both signs are equal."""
    logits = torch.zeros(1, vocab)
    logits[0, ::3] = -0.0
    check(logits, settings_of(1, uniform=uniform, **filters))


@pytest.mark.parametrize("share", [0.125, 0.875])
@pytest.mark.parametrize("vocab", [8, 200])
def test_top_p_is_content_with_exactly_its_share(vocab: int, share: float) -> None:
    found = choose(torch.zeros(1, vocab), *settings_of(1, top_p=share, uniform=1 - 2.0**-53).columns())
    assert found.tolist() == [share * vocab - 1]


@pytest.mark.parametrize("filters", FILTERS[::3], ids=str)
def test_of_one_possible_token_that_one_is_chosen(filters: dict[str, float]) -> None:
    logits = torch.full((2, 1100), -torch.inf)
    logits[0, 1099] = -5.0
    logits[1, 0] = 1e30
    assert check(logits, settings_of(2, uniform=1 - 2.0**-53, **filters)).tolist() == [1099, 0]


def test_greedy_takes_the_first_of_the_largest() -> None:
    logits = torch.randn(3, 3000)
    logits[0, [1500, 700, 2999]] = 50.0
    logits[1] = -torch.inf
    logits[1, 40] = -3e38
    logits[2, [5, 2047, 2048]] = torch.tensor([0.0, -0.0, 0.0])
    logits[2] -= logits[2].clamp(min=0) + (logits[2] < 0)
    expected = logits.argmax(-1).tolist()
    assert expected[:2] == [700, 40]
    assert greedy(logits).tolist() == expected
    assert choose(logits, *settings_of(3, temperature=0.0).columns()).tolist() == expected


def test_rows_without_a_finite_largest_logit_have_no_token() -> None:
    logits = torch.randn(4, 1100)
    logits[0] = -torch.inf
    logits[1, 3] = torch.inf
    logits[2, 1099] = torch.nan
    logits[3, 7] = -torch.tensor(torch.nan)
    for filters in ({}, {"temperature": 0.0}, {"top_p": 0.9}, {"top_k": 3}):
        assert choose(logits, *settings_of(4, **filters).columns()).tolist() == [-1] * 4
    assert greedy(logits).tolist() == [-1] * 4


@pytest.mark.parametrize(("vocab", "width"), [(200, 0.5), (1100, 4.0)])
def test_tokens_are_those_of_the_sampler_on_the_cpu(vocab: int, width: float) -> None:
    samplings = [
        Sampling(temperature=0.0),
        Sampling(temperature=1.0, seed=1),
        Sampling(temperature=0.7, top_p=0.9, seed=2),
        Sampling(temperature=1.5, top_p=0.999, seed=3),
        Sampling(top_k=20, seed=4),
        Sampling(top_k=150, top_p=0.8, seed=5),
        Sampling(min_p=0.05, temperature=0.9, seed=6),
        Sampling(top_k=50, top_p=0.95, min_p=0.01, seed=7),
    ]
    states = [RowState(one, [], 0) for one in samplings]
    logits = torch.randn(len(states), vocab) * width
    rows = [Row(at, state) for at, state in enumerate(states)]
    found = choose(
        logits,
        torch.tensor([state.sampling.temperature for state in states], dtype=F64),
        torch.tensor([state.sampling.top_k for state in states]),
        torch.tensor([state.sampling.top_p for state in states], dtype=F64),
        torch.tensor([state.sampling.min_p for state in states], dtype=F64),
        torch.tensor([row.uniform if row.state.uniforms is not None else 0.0 for row in rows], dtype=F64),
    )
    expected = [one.token for one in sample(logits.clone(), rows, lambda token: b"") if isinstance(one, Chosen)]
    # the CPU sums all of an unfiltered row in float32, and so may end one token beside
    for token, other, state in zip(found.tolist(), expected, states, strict=True):
        assert token == other or (not state.is_filtered and abs(token - other) == 1)


@pytest.mark.parametrize("vocab", [1, 17, 1000, 3001])
def test_log_probabilities(vocab: int) -> None:
    logits = peaked(4, vocab, 10.0)
    tokens = torch.randint(0, vocab, (4,))
    tokens[3] = -1
    if vocab > 2000:
        logits[1, 1024:2048] = -torch.inf
    exact = choice.score(logits, tokens)
    found = score(logits, tokens)
    assert found.dtype == torch.float32
    assert torch.allclose(found.double(), exact, rtol=1e-6, atol=2e-6)


def test_what_is_impossible_has_a_log_probability_of_minus_infinity() -> None:
    logits = torch.tensor([[0.0, -torch.inf]])
    assert score(logits, torch.tensor([1])).tolist() == [-torch.inf]
    assert score(logits, torch.tensor([0])).tolist() == [0.0]


def test_no_rows_are_no_work_and_what_does_not_fit_is_refused() -> None:
    none = torch.zeros(0, 50)
    assert choose(none, *settings_of(0).columns()).shape == greedy(none).shape == (0,)
    assert score(none, torch.zeros(0, dtype=torch.int64)).shape == (0,)
    logits, columns = torch.zeros(2, 50), settings_of(2).columns()
    with pytest.raises(ValueError, match="float16"):
        choose(logits.half(), *columns)
    with pytest.raises(ValueError, match="dense rows"):
        greedy(torch.zeros(50, 2).t())
    with pytest.raises(ValueError, match=r"temperature must be 2 numbers of torch.float64, not \[2\] of torch.float32"):
        choose(logits, columns[0].float(), *columns[1:])
    with pytest.raises(ValueError, match=r"uniform must be 2 numbers of torch.float64, not \[3\]"):
        choose(logits, *columns[:4], torch.zeros(3, dtype=F64))
    with pytest.raises(ValueError, match=r"\[3\] tokens"):
        score(logits, torch.zeros(3, dtype=torch.int64))
