"""`backends/protocol.py` as a test-suite: what every backend promises, whatever its model says."""

import array
import asyncio
import math
from collections import Counter
from collections.abc import Callable
from contextlib import aclosing

import pytest
from msgspec.structs import replace

from backends.errors import ContextOverflow, ModelNotFound, Rejected, Unavailable, Unsupported
from backends.protocol import Backend
from backends.types import (
    Chat,
    Delta,
    EmbedRequest,
    GenerateRequest,
    Health,
    Message,
    Sampling,
    Text,
    TokenizeRequest,
    Tokens,
)
from tests.contract.conftest import Subject

GREEDY = Sampling(temperature=0.0)

pytestmark = pytest.mark.asyncio(loop_scope="module")


def ask(subject: Subject, **changes: object) -> GenerateRequest:
    request = GenerateRequest(
        id="contract-1", model=subject.model, prompt=Text("Once upon a time"), max_tokens=12, sampling=GREEDY, ignore_eos=True
    )
    return replace(request, **changes)


def chat(*texts: str) -> Chat:
    return Chat(messages=tuple(Message(role="user", content=text) for text in texts))


async def play(subject: Subject, request: GenerateRequest) -> list[Delta]:
    async with aclosing(subject.backend.generate(request)) as deltas:
        return [delta async for delta in deltas]


def text_of(deltas: list[Delta], index: int = 0) -> str:
    return "".join(delta.text for delta in deltas if delta.index == index)


async def until(backend: Backend, condition: Callable[[Health], bool]) -> None:
    """Wait until a backend says that it is in some condition."""
    async with asyncio.timeout(10):
        while not condition(await backend.health()):  # noqa: ASYNC110 - all that the protocol offers
            await asyncio.sleep(0.005)


async def idle(backend: Backend) -> None:
    """Wait until nothing runs or waits."""
    await until(backend, lambda health: not health.running and not health.waiting)


async def test_backend_satisfies_the_protocol(subject: Subject) -> None:
    assert isinstance(subject.backend, Backend)


async def test_models_names_the_model_with_its_sizes(subject: Subject) -> None:
    card = next(card for card in await subject.backend.models() if card.id == subject.model)
    assert {"chat", "completion"} <= set(card.capabilities)
    assert card.context_length > 0
    assert card.vocab_size > 0
    assert card.created > 0


@pytest.mark.parametrize("n", [1, 3])
async def test_every_choice_finishes_once_and_usage_comes_last(subject: Subject, n: int) -> None:
    deltas = await play(subject, ask(subject, prompt=chat("Tell me a story."), n=n))
    finishes = Counter(delta.index for delta in deltas if delta.finish is not None)
    assert finishes == dict.fromkeys(range(n), 1)
    assert [delta.usage is not None for delta in deltas] == [False] * (len(deltas) - 1) + [True]
    ended: set[int] = set()
    for delta in deltas:
        assert delta.index not in ended
        if delta.finish is not None:
            ended.add(delta.index)


async def test_max_tokens_is_exact_and_counted(subject: Subject) -> None:
    for max_tokens in (1, 2, 7):
        deltas = await play(subject, ask(subject, max_tokens=max_tokens))
        assert deltas[-1].usage.completion_tokens == max_tokens
        assert sum(delta.tokens for delta in deltas) == max_tokens
        assert [delta.finish for delta in deltas if delta.finish] == ["length"]


async def test_usage_counts_the_prompt_once_and_all_choices(subject: Subject) -> None:
    prompt = Text("One two three four five")
    tokens = await subject.backend.tokenize(TokenizeRequest(model=subject.model, prompt=prompt))
    usage = (await play(subject, ask(subject, prompt=prompt, n=2, max_tokens=5)))[-1].usage
    assert usage.prompt_tokens == len(tokens.ids)
    assert usage.completion_tokens == 10
    assert 0 <= usage.cached_tokens <= usage.prompt_tokens


async def test_greedy_answers_repeat(subject: Subject) -> None:
    first, second = [text_of(await play(subject, ask(subject))) for _ in range(2)]
    assert first == second != ""


async def test_a_seed_makes_sampling_repeat(subject: Subject) -> None:
    request = ask(subject, sampling=Sampling(temperature=1.0, seed=7), n=2)
    first, second = [await play(subject, request) for _ in range(2)]
    for index in range(2):
        assert text_of(first, index) == text_of(second, index)


async def test_token_ids_and_text_of_the_same_prompt_give_the_same_answer(subject: Subject) -> None:
    tokens = await subject.backend.tokenize(TokenizeRequest(model=subject.model, prompt=Text("Once upon a time")))
    assert text_of(await play(subject, ask(subject, prompt=Tokens(tokens.ids)))) == text_of(await play(subject, ask(subject)))


async def test_a_stop_string_is_never_visible_wherever_it_lies(subject: Subject) -> None:
    whole = text_of(await play(subject, ask(subject, max_tokens=40)))
    for start in range(1, 10):
        for length in (1, 2, 5):
            stop = whole[start : start + length]
            deltas = await play(subject, ask(subject, max_tokens=40, stop=(stop,)))
            assert text_of(deltas) == whole[: whole.index(stop)]
            assert [delta.finish for delta in deltas if delta.finish] == ["stop"]


async def test_a_stop_string_that_never_comes_holds_nothing_back_at_the_end(subject: Subject) -> None:
    whole = text_of(await play(subject, ask(subject)))
    stop = whole[-2:] + "\x00never"
    assert text_of(await play(subject, ask(subject, stop=(stop,)))) == whole


async def test_a_stop_token_id_ends_the_answer_before_its_text(subject: Subject) -> None:
    deltas = await play(subject, ask(subject, logprobs=0))
    tokens = [token for delta in deltas for token in delta.logprobs]
    stop = tokens[5]
    before = tokens[: next(i for i, token in enumerate(tokens) if token.id == stop.id)]
    deltas = await play(subject, ask(subject, stop_token_ids=(stop.id,)))
    assert text_of(deltas).encode() == b"".join(token.piece for token in before)
    assert [delta.finish for delta in deltas if delta.finish] == ["stop"]


async def test_logprobs_concatenate_to_the_text_and_are_numbers(subject: Subject) -> None:
    deltas = await play(subject, ask(subject, max_tokens=16, logprobs=3))
    tokens = [token for delta in deltas for token in delta.logprobs]
    assert b"".join(token.piece for token in tokens).decode("utf-8", "replace") == text_of(deltas)
    for token in tokens:
        assert -9999.0 <= token.logprob <= 0.0
        assert len(token.top) == 3
        logprobs = [other.logprob for other in token.top]
        assert logprobs == sorted(logprobs, reverse=True)
        # Greedy: the chosen token is the most likely one.
        assert math.isclose(token.logprob, logprobs[0], abs_tol=1e-4)


async def test_no_logprobs_unless_asked_for(subject: Subject) -> None:
    assert all(not delta.logprobs for delta in await play(subject, ask(subject)))
    zero = [token for delta in await play(subject, ask(subject, logprobs=0)) for token in delta.logprobs]
    assert zero
    assert all(token.top == () for token in zero)


async def test_echo_puts_the_prompt_before_the_answer(subject: Subject) -> None:
    plain = await play(subject, ask(subject))
    deltas = await play(subject, ask(subject, echo=True, logprobs=1))
    assert text_of(deltas) == "Once upon a time" + text_of(plain)
    assert sum(delta.tokens for delta in deltas) == 12
    tokens = [token for delta in deltas for token in delta.logprobs]
    assert tokens[0].logprob is None
    assert all(token.logprob is not None for token in tokens[1:])


async def test_echo_without_an_answer_scores_the_prompt_alone(subject: Subject) -> None:
    deltas = await play(subject, ask(subject, echo=True, logprobs=0, max_tokens=0))
    assert text_of(deltas) == "Once upon a time"
    assert deltas[-1].usage.completion_tokens == 0
    assert [delta.finish for delta in deltas if delta.finish] == ["length"]
    assert sum(len(delta.logprobs) for delta in deltas) == deltas[-1].usage.prompt_tokens


async def test_an_assistant_message_at_the_end_is_continued(subject: Subject) -> None:
    messages = (Message(role="user", content="Count."), Message(role="assistant", content="One, two,"))
    deltas = await play(subject, ask(subject, prompt=Chat(messages=messages, continue_final=True)))
    assert text_of(deltas)
    assert not text_of(deltas).startswith("One, two,")


@pytest.mark.parametrize(
    "bad",
    [
        {"sampling": Sampling(logit_bias={999_999_999: 1.0})},
        {"stop_token_ids": (999_999_999,)},
        {"prompt": Tokens((999_999_999,))},
    ],
)
async def test_ids_outside_the_vocabulary_are_refused_and_the_backend_lives(subject: Subject, bad: dict[str, object]) -> None:
    with pytest.raises(Rejected):
        await play(subject, ask(subject, **bad))
    assert text_of(await play(subject, ask(subject)))
    await idle(subject.backend)


async def test_a_prompt_beyond_the_context_is_refused_before_the_first_delta(subject: Subject) -> None:
    card = next(card for card in await subject.backend.models() if card.id == subject.model)
    long = Text("word " * card.context_length)
    with pytest.raises(ContextOverflow) as caught:
        await anext(subject.backend.generate(ask(subject, prompt=long)))
    assert str(card.context_length) in caught.value.message
    await idle(subject.backend)


async def test_an_unknown_model_is_refused_everywhere(subject: Subject) -> None:
    with pytest.raises(ModelNotFound):
        await play(subject, ask(subject, model="nope"))
    with pytest.raises(ModelNotFound):
        await subject.backend.tokenize(TokenizeRequest(model="nope", prompt=Text("a")))
    with pytest.raises(ModelNotFound):
        await subject.backend.detokenize("nope", (1,))
    with pytest.raises(ModelNotFound):
        await subject.backend.embed(EmbedRequest(id="e", model="nope", inputs=(Text("a"),)))


async def test_closing_the_iterator_frees_everything_after_any_delta(subject: Subject) -> None:
    for deltas_seen in (1, 2, 5):
        deltas = subject.backend.generate(ask(subject, prompt=chat("A long story, please."), max_tokens=100, n=2))
        for _ in range(deltas_seen):
            await anext(deltas)
        await deltas.aclose()
        await idle(subject.backend)


async def test_cancelling_the_consumer_frees_everything_before_the_first_delta(subject: Subject) -> None:
    for _ in range(5):
        task = asyncio.create_task(play(subject, ask(subject, max_tokens=100)))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    await idle(subject.backend)


async def test_requests_beyond_the_slots_wait_and_vanish_when_closed(subject: Subject) -> None:
    running = [subject.backend.generate(ask(subject, id=f"r{i}", max_tokens=300)) for i in range(subject.slots)]
    for deltas in running:
        await anext(deltas)
    waiting = [asyncio.create_task(play(subject, ask(subject, id=f"w{i}"))) for i in range(3)]
    await until(subject.backend, lambda health: health.waiting >= 3)
    for task in waiting:
        task.cancel()
    await asyncio.wait(waiting)
    await until(subject.backend, lambda health: not health.waiting)
    for deltas in running:
        await deltas.aclose()
    await idle(subject.backend)


async def test_many_requests_at_once_all_end_as_they_would_alone(subject: Subject) -> None:
    prompts = [f"Story number {index} begins" for index in range(3 * subject.slots)]
    alone = [text_of(await play(subject, ask(subject, prompt=Text(prompt)))) for prompt in prompts[:3]]
    together = await asyncio.gather(*(play(subject, ask(subject, id=p, prompt=Text(p))) for p in prompts))
    assert [text_of(deltas) for deltas in together[:3]] == alone
    assert all(text_of(deltas) for deltas in together)
    await idle(subject.backend)


@pytest.mark.parametrize("text", ["", "Hello, world", "naïve 漢字 🧑‍🚀\n\ttail  ", "<|im_start|> is text"])
async def test_tokenize_and_detokenize_round_trip(subject: Subject, text: str) -> None:
    request = TokenizeRequest(model=subject.model, prompt=Text(text), add_special=False, parse_special=False)
    tokens = await subject.backend.tokenize(request)
    assert b"".join(tokens.pieces).decode() == text
    assert await subject.backend.detokenize(subject.model, tokens.ids) == text


async def test_detokenize_refuses_ids_outside_the_vocabulary(subject: Subject) -> None:
    with pytest.raises(Rejected):
        await subject.backend.detokenize(subject.model, (999_999_999,))


async def test_a_rendered_conversation_has_as_many_tokens_as_its_usage_says(subject: Subject) -> None:
    prompt = chat("Hello there")
    request = TokenizeRequest(model=subject.model, prompt=prompt, add_special=False)
    tokens = await subject.backend.tokenize(request)
    deltas = await play(subject, ask(subject, prompt=prompt))
    assert deltas[-1].usage.prompt_tokens == len(tokens.ids)


async def test_embeddings_are_unit_vectors_in_order_or_refused(subject: Subject) -> None:
    request = EmbedRequest(id="e", model=subject.model, inputs=(Text("cat"), Text("a dog"), Text("cat")))
    card = next(card for card in await subject.backend.models() if card.id == subject.model)
    if "embedding" not in card.capabilities:
        with pytest.raises(Unsupported):
            await subject.backend.embed(request)
        return
    embeddings = await subject.backend.embed(request)
    vectors = [array.array("f", vector) for vector in embeddings.vectors]
    assert len(vectors) == 3
    assert len({len(vector) for vector in vectors}) == 1
    assert all(math.isclose(sum(x * x for x in vector), 1.0, abs_tol=1e-3) for vector in vectors)
    assert vectors[0] == vectors[2] != vectors[1]
    assert embeddings.usage.prompt_tokens > 0


async def test_after_close_everything_is_refused_and_closing_again_is_harmless(own: Subject) -> None:
    deltas = own.backend.generate(ask(own, max_tokens=300))
    await anext(deltas)
    await own.backend.close()
    with pytest.raises(Unavailable):
        async for _ in deltas:
            pass
    await own.backend.close()
    with pytest.raises(Unavailable):
        await play(own, ask(own))
    health = await own.backend.health()
    assert health.state in ("stopped", "failed")
    assert health.running == health.waiting == 0
    assert await own.backend.models()
