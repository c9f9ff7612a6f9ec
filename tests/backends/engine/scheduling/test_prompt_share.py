"""How the prompt tokens of a step are divided."""

from hypothesis import given
from hypothesis import strategies as st

from backends.engine.scheduling.share import share_out
from tests.backends.engine.scheduling.driver import Driver, sequence


def shares(lengths: list[int], budget: int, priorities: list[int] | None = None) -> dict[int, int]:
    prompts = [
        sequence(range(n), request=i, priority=p) for i, (n, p) in enumerate(zip(lengths, priorities or [0] * 9, strict=False))
    ]
    for number, prompt in enumerate(prompts):
        prompt.number = number
    return {c.sequence.request: c.end - c.start for c in share_out(prompts, budget, 1000, 8)}


def test_prompts_alike_are_computed_one_after_the_other() -> None:
    assert shares([100, 100, 100], 128) == {0: 100, 1: 24}


def test_a_short_prompt_does_not_wait_for_a_giant() -> None:
    assert shares([5000, 60, 30], 128) == {0: 64, 2: 30, 1: 32}
    assert shares([5000, 20], 128) == {0: 104, 1: 20}


def test_a_short_prompt_waits_for_a_giant_that_is_more_urgent() -> None:
    assert shares([5000, 20], 128, [-1, 0]) == {0: 128}
    assert shares([5000, 20], 128, [1, 0]) == {0: 104, 1: 20}


def test_a_giant_is_not_starved_by_a_stream_of_short_ones() -> None:
    driver = Driver(slots=4, blocks=1024)
    giant = sequence(range(10_000, 10_400), request=1)
    driver.submit(giant)
    for request in range(2, 60):
        short = sequence(range(request * 20, request * 20 + 16), request=request)
        driver.submit(short)
        assert driver.step().get(1, 0) >= 8
        driver.finish(short)
        if giant.num_generated:
            return
    raise AssertionError("the giant never got its first token")


@given(
    st.lists(st.tuples(st.integers(1, 60), st.integers(0, 59), st.integers(-2, 2)), min_size=1, max_size=6),
    st.integers(1, 80),
    st.integers(1, 12),
    st.integers(1, 8),
)
def test_shares_keep_to_tokens_blocks_and_block_ends(
    lengths: list[tuple[int, int, int]], budget: int, available: int, block: int
) -> None:
    prompts = []
    for number, (length, computed, priority) in enumerate(lengths):
        prompt = sequence(range(length), request=number, priority=priority)
        prompt.number, prompt.num_computed = number, min(computed, length - 1)
        prompts.append(prompt)
    chunks = share_out(prompts, budget, available, block)
    assert sum(c.end - c.start for c in chunks) <= budget
    assert sum(-(-c.end // block) - -(-c.start // block) for c in chunks) <= available
    assert len({c.sequence for c in chunks}) == len(chunks)
    assert chunks[0].sequence is prompts[0]
    for chunk in chunks:
        assert chunk.sequence.num_computed == chunk.start < chunk.end <= len(chunk.sequence.tokens)
        ends_well = chunk.end == len(chunk.sequence.tokens) or chunk.end % block == 0
        assert ends_well or (chunk is chunks[0] and budget < block)
