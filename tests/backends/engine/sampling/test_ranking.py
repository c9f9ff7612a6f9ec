"""The largest logits by blocks, against sorting everything."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from textbook import Row, order

from backends.engine.sampling.ranking import largest, ranked

# Few distinct values, so that ties decide most of the order.
coarse = st.sampled_from([0.0, -0.0, 1.0, 1.5, -1.0, -2.5, -np.inf])
tables = hnp.arrays(np.float32, st.tuples(st.integers(1, 3), st.integers(1, 700)), elements=coarse)


@settings(deadline=None)
@given(tables, st.integers(1, 80))
def test_ranked_is_the_beginning_of_a_stable_sort(table: Row, count: int) -> None:
    values, ids = ranked(torch.from_numpy(table), count)
    for row, found, own in zip(table, ids.numpy(), values.numpy(), strict=True):
        assert found.tolist() == order(row)[:count].tolist()
        assert own.tolist() == row[found].tolist()


@settings(deadline=None)
@given(tables)
def test_largest_is_the_first_of_equal_ones(table: Row) -> None:
    values, ids = largest(torch.from_numpy(table))
    assert ids.tolist() == table.argmax(1).tolist()
    assert values.tolist() == table.max(1).tolist()


@pytest.mark.parametrize("vocab", [6400, 6437])
def test_a_large_vocabulary_is_ranked_by_its_best_blocks_alone(vocab: int) -> None:
    random = np.random.default_rng(1)
    for table in (random.normal(0, 3, (4, vocab)), random.integers(0, 12, (4, vocab)), np.arange(4 * vocab).reshape(4, -1)):
        rows = table.astype(np.float32)
        for count in (1, 20, 64):
            ids = ranked(torch.from_numpy(rows), count)[1]
            assert ids.tolist() == [order(row)[:count].tolist() for row in rows]


def test_a_logit_that_is_no_number_is_the_largest() -> None:
    table = torch.zeros(2, 300)
    table[1, 200] = torch.nan
    values, _ = largest(table)
    assert values.isnan().tolist() == [False, True]
