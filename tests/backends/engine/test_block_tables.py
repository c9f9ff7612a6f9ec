"""The tensors that attention finds blocks by, while sequences come, grow and go."""

from hypothesis import given
from hypothesis import strategies as st

from backends.engine.scheduling.sequence import Sequence
from backends.engine.tables import Tables
from tests.backends.engine.scheduling.driver import BLOCK, sequence

SLOTS, ENTRIES = 2, 6


def running(*blocks: int) -> Sequence:
    """A sequence that was admitted and holds these blocks."""
    made = sequence(range(1))
    made.admissions = 1
    made.holding.tables = [list(blocks)]
    return made


def entries(tables: Tables, one: Sequence) -> list[int]:
    row = tables.row(one, BLOCK)
    return tables.tensors[0][row, : one.holding.num_blocks].tolist()


def test_all_running_sequences_can_be_replaced_in_one_step() -> None:
    tables = Tables(SLOTS, ENTRIES, 1)
    for first in (0, 10, 20):
        both = [running(first), running(first + 1)]
        tables.forget_all_but(set(both))
        assert [entries(tables, one) for one in both] == [[first], [first + 1]]


def test_preempted_sequence_is_read_by_its_new_blocks() -> None:
    tables, one = Tables(SLOTS, ENTRIES, 1), running(3, 4, 5)
    one.num_computed = 3 * BLOCK
    assert entries(tables, one) == [3, 4, 5]
    one.holding.tables, one.num_computed, one.admissions = [[7, 8]], BLOCK, 2
    assert entries(tables, one) == [7, 8]


def test_block_that_held_only_guesses_is_replaced() -> None:
    tables, one = Tables(SLOTS, ENTRIES, 1), running(3, 4)
    one.num_computed = BLOCK - 1
    assert entries(tables, one) == [3, 4]
    one.holding.tables = [[3, 9]]
    assert entries(tables, one) == [3, 9]


@given(st.lists(st.tuples(st.integers(0, SLOTS - 1), st.booleans(), st.integers(0, 99)), max_size=40))
def test_rows_are_what_the_sequences_hold(moves: list[tuple[int, bool, int]]) -> None:
    """In each move a slot goes to a new sequence, or its sequence grows by a block."""
    tables, slots = Tables(SLOTS, ENTRIES, 1), [running(i) for i in range(SLOTS)]
    for slot, grows, block in moves:
        one = slots[slot]
        if grows and one.holding.num_blocks < ENTRIES:
            one.num_computed = one.holding.num_blocks * BLOCK
            one.holding.tables[0].append(block)
        else:
            slots[slot] = running(block)
        tables.forget_all_but(set(slots))
        assert [entries(tables, each) for each in slots] == [each.holding.tables[0] for each in slots]
