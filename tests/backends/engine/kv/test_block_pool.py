"""The books of a pool, against a plain model of them."""

import random

import pytest

from backends.engine.kv.blocks import BlockPool, Reason


def test_each_block_has_one_reason_and_the_counts_add_up() -> None:
    pool = BlockPool(4)
    named, unnamed = pool.take(2)
    pool.enter(named, b"a")
    assert [pool.count(reason) for reason in (Reason.FREE, Reason.CACHED, Reason.RUNNING)] == [2, 0, 2]
    pool.release([named, unnamed])
    assert pool.reason(named) is Reason.CACHED
    assert pool.reason(unnamed) is Reason.FREE
    assert [pool.count(reason) for reason in (Reason.FREE, Reason.CACHED, Reason.RUNNING)] == [3, 1, 0]


def test_a_cached_block_is_found_and_shared_again() -> None:
    pool = BlockPool(2)
    (block,) = pool.take(1)
    pool.enter(block, b"a")
    pool.release([block])
    assert pool.find(b"a") == block
    pool.share(block)
    assert pool.reason(block) is Reason.RUNNING
    pool.check_integrity([[block]])


def test_of_blocks_released_together_the_first_is_evicted_first() -> None:
    pool = BlockPool(3)
    table = pool.take(3)
    for block, name in zip(table, (b"a", b"b", b"c"), strict=True):
        pool.enter(block, name)
    pool.release(reversed(table))
    pool.take(1)
    assert [pool.find(name) is None for name in (b"a", b"b", b"c")] == [False, False, True]
    pool.take(1)
    assert [pool.find(name) is None for name in (b"a", b"b", b"c")] == [False, True, True]
    assert pool.evictions == 2


def test_free_blocks_are_used_before_cached_ones_are_evicted() -> None:
    pool = BlockPool(2)
    (block,) = pool.take(1)
    pool.enter(block, b"a")
    pool.release([block])
    assert pool.take(1) != [block]
    assert pool.evictions == 0


def test_a_second_block_with_the_same_content_gets_no_name() -> None:
    pool = BlockPool(2)
    first, second = pool.take(2)
    pool.enter(first, b"a")
    pool.enter(second, b"a")
    pool.release([second])
    assert pool.find(b"a") == first
    assert pool.reason(second) is Reason.FREE


def test_what_is_forgotten_is_free_once_nobody_holds_it() -> None:
    pool = BlockPool(2)
    held, idle = pool.take(2)
    pool.enter(held, b"held")
    pool.enter(idle, b"idle")
    pool.release([idle])
    pool.forget(b"held")
    pool.forget(b"idle")
    pool.forget(b"never there")
    pool.check_integrity([[held]])
    pool.release([held])
    assert pool.count(Reason.FREE) == 2


def test_the_books_notice_a_lost_reference() -> None:
    pool = BlockPool(2)
    pool.take(1)
    with pytest.raises(AssertionError, match="references differ"):
        pool.check_integrity([])


def test_a_block_is_not_released_more_often_than_held() -> None:
    pool = BlockPool(1)
    pool.release(pool.take(1))
    with pytest.raises(AssertionError, match="more often than held"):
        pool.release([0])


class Model:
    """Blocks with references and names; idle named ones in the order in which they became idle."""

    def __init__(self, size: int) -> None:
        self.references = dict.fromkeys(range(size), 0)
        self.names: dict[int, bytes] = {}
        self.idle: list[int] = []

    def free(self) -> set[int]:
        return {b for b, n in self.references.items() if not n and b not in self.names}


def test_random_use_agrees_with_a_plain_model() -> None:
    for seed in range(40):
        chance = random.Random(seed)
        size = chance.randint(1, 8)
        pool, model = BlockPool(size), Model(size)
        for _ in range(150):
            _act(chance, pool, model)
            holders = [[b] * n for b, n in model.references.items()]
            pool.check_integrity(holders)
            assert pool.available == len(model.free()) + len(model.idle)
            assert {name: pool.find(name) for name in model.names.values()} == {n: b for b, n in model.names.items()}


def _act(chance: random.Random, pool: BlockPool, model: Model) -> None:
    held = [b for b, n in model.references.items() if n]
    name = bytes([chance.randrange(12)])
    match chance.randrange(6):
        case 0 if pool.available:
            free = model.free()
            (block,) = pool.take(1)
            if free:
                assert block in free
            else:
                assert block == model.idle.pop(0)
                del model.names[block]
            model.references[block] = 1
        case 1 if (found := pool.find(name)) is not None:
            pool.share(found)
            model.references[found] += 1
            if found in model.idle:
                model.idle.remove(found)
        case 2 | 3 if held:
            block = chance.choice(held)
            pool.release([block])
            model.references[block] -= 1
            if not model.references[block] and block in model.names:
                model.idle.append(block)
        case 4 if held:
            block = chance.choice(held)
            pool.enter(block, name)
            if block not in model.names and name not in model.names.values():
                model.names[block] = name
        case 5 if chance.random() < 0.3:
            pool.forget(name)
            for block in [b for b, n in model.names.items() if n == name]:
                del model.names[block]
                if block in model.idle:
                    model.idle.remove(block)
