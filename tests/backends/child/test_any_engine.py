"""A small engine under the real worker and the real parent: whatever is no engine's own works for it as for any other."""

import resource
import sys
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from pathlib import Path

import pytest
from msgspec.structs import replace

from backends.child.parent.hosted import HostedBackend
from backends.errors import ContextOverflow, Failed, Rejected, Unavailable, Unsupported
from backends.types import Chat, Delta, EmbedRequest, Message, Text, TokenizeRequest, Tokens
from tests.backends.child.conftest import NAME, ask, play, ready, text_of, until
from tests.backends.child.letters import EOS, LIMIT, LettersConfig

Start = Callable[..., Awaitable[HostedBackend]]

LETTERS = (sys.executable, str(Path(__file__).with_name("letters.py")))


@pytest.fixture
def letters(start: Start) -> Start:
    async def make(**settings: object) -> HostedBackend:
        backend = await start(command=LETTERS, kind=LettersConfig, **settings)
        await until(backend, lambda health: health.state != "loading" or bool(health.counters.get("crashes_total")))
        return backend

    return make


async def test_the_child_answers_with_what_its_engine_writes(letters: Start) -> None:
    backend = await letters()
    deltas = await play(backend, "abc", max_tokens=5, n=2)
    assert [text_of(deltas, index) for index in range(2)] == ["defgh", "defgh"]
    assert (deltas[-1].usage.prompt_tokens, deltas[-1].usage.completion_tokens) == (3, 10)
    (card,) = await backend.models()
    assert (card.architecture, card.context_length) == ("letters", LIMIT)
    health = await until(backend, lambda health: health.counters.get("finished_total") == 2)
    assert (health.slots, health.gauges) == (2, {"letters": 26.0})


@pytest.mark.parametrize("tokens_per_step", [1, 2, 3, 7])
async def test_several_tokens_of_a_step_make_the_same_answer_as_one_at_a_time(letters: Start, tokens_per_step: int) -> None:
    backend = await letters(tokens_per_step=tokens_per_step)
    for stop, text, reason in [((), "defghijkl", "length"), (("h",), "defg", "stop"), (("efgh", "x"), "d", "stop")]:
        deltas = await play(backend, "abc", max_tokens=9, n=2, stop=stop)
        for index in range(2):
            assert text_of(deltas, index) == text
        assert [delta.finish for delta in deltas if delta.finish] == [reason] * 2
        # The token that completes the stop string is the last that counts, whatever came with it.
        assert deltas[-1].usage.completion_tokens == 2 * (5 if stop else 9)
    stopped = await play(backend, "abc", stop_token_ids=(ord("g"),))
    assert (text_of(stopped), stopped[-1].usage.completion_tokens) == ("def", 4)


@pytest.mark.parametrize("max_tokens", [0, 2])
async def test_an_echo_with_scores_comes_once_for_each_choice(letters: Start, max_tokens: int) -> None:
    backend = await letters()
    deltas = await play(backend, "abc", max_tokens=max_tokens, n=2, echo=True, logprobs=0)
    for index in range(2):
        assert text_of(deltas, index) == "abcde"[: 3 + max_tokens]
        assert [delta.finish for delta in deltas if delta.index == index and delta.finish] == ["length"]
        echoed = next(delta for delta in deltas if delta.index == index)
        assert [token.logprob for token in echoed.logprobs] == [None, -1.0, -1.0]
    assert deltas[-1].usage.completion_tokens == 2 * max_tokens


@pytest.mark.parametrize("tokens_per_step", [1, 3])
async def test_a_stop_string_lets_the_sequence_go(letters: Start, tokens_per_step: int) -> None:
    backend = await letters(tokens_per_step=tokens_per_step)
    assert text_of(await play(backend, "abc", n=2, stop=("h",))) == "defg"
    health = await until(backend, lambda health: health.counters.get("finished_total") == 2)
    assert health.running == 0


async def test_a_reader_that_leaves_lets_its_sequences_go(letters: Start) -> None:
    backend = await letters(tokens_per_step=3)
    async with aclosing(backend.generate(ask("abc", n=2))) as deltas:
        await anext(deltas)
    health = await until(backend, lambda health: health.counters.get("finished_total") == 2)
    assert health.running == 0


async def read_to_the_end(backend: HostedBackend, prompt: str) -> tuple[list[Delta], Failed]:
    seen: list[Delta] = []
    try:
        async for delta in backend.generate(ask(prompt)):
            seen.append(delta)  # noqa: PERF401 - what came before the error is wanted
    except Failed as error:
        return seen, error
    raise AssertionError("it ended well")


@pytest.mark.parametrize("tokens_per_step", [1, 3])
async def test_what_came_in_the_step_of_a_fault_is_read_before_the_error(letters: Start, tokens_per_step: int) -> None:
    backend = await letters(fault="end", tokens_per_step=tokens_per_step)
    seen, error = await read_to_the_end(backend, "x")
    assert (text_of(seen), error.message) == ("yz", "There is no letter after z.")
    assert text_of(await play(backend, "abc", max_tokens=1)) == "d"


async def test_conversations_are_rendered_and_ids_are_checked(letters: Start) -> None:
    backend = await letters()
    chat = Chat(messages=(Message(role="user", content="abc <|end|>"),))
    tokens = await backend.tokenize(TokenizeRequest(model=NAME, prompt=chat))
    assert await backend.detokenize(NAME, tokens.ids) == "<|im_start|>user\nabc <|end|><|im_end|>\n<|im_start|>assistant\n"
    assert await backend.detokenize(NAME, (97, EOS)) == "a<|end|>"
    with pytest.raises(Rejected, match="token id 257 is outside the vocabulary"):
        await anext(backend.generate(replace(ask(""), prompt=Tokens((97, 257)))))
    with pytest.raises(ContextOverflow, match=f"{LIMIT} tokens"):
        await play(backend, "a" * LIMIT)


async def test_an_engine_without_embeddings_refuses_them(letters: Start) -> None:
    backend = await letters()
    with pytest.raises(Unsupported, match="makes no embeddings") as caught:
        await backend.embed(EmbedRequest(id="e", model=NAME, inputs=(Text("a"),)))
    assert caught.value.param == "model"
    assert text_of(await play(backend, "abc", max_tokens=1)) == "d"


@pytest.mark.parametrize(
    ("fault", "reason"), [("load", "The file has 25 letters, 26 are needed."), ("memory", "not enough memory")]
)
async def test_a_model_that_cannot_be_loaded_is_given_up_with_the_reason(letters: Start, fault: str, reason: str) -> None:
    backend = await letters(fault=fault)
    health = await backend.health()
    assert (health.state, health.detail) == ("failed", reason)
    assert health.counters["starts_total"] == 1
    with pytest.raises(Unavailable, match=reason):
        await play(backend, "abc")


async def test_a_bug_while_loading_is_a_crash(letters: Start) -> None:
    backend = await letters(fault="bug", max_crashes=2)
    health = await until(backend, lambda health: health.state == "failed")
    assert "exited with status 70" in health.detail
    assert health.counters["starts_total"] == 2


async def test_the_address_space_of_the_child_is_bounded(letters: Start) -> None:
    backend = await letters(max_memory_bytes=8 << 30)
    await ready(backend)
    soft, hard = resource.prlimit(backend._supervisor.life.pid, resource.RLIMIT_AS)
    assert soft == hard == 8 << 30
