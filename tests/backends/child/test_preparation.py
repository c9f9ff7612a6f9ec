"""A request becomes sequences of the engine's own kind, or an error before it takes a slot."""

import pytest

from backends.child.prepare import MakeSequence, Preparer, scores_prompt
from backends.child.sequence import Sequence
from backends.errors import ContextOverflow, Rejected, Unsupported
from backends.text.constraint import Constraint
from backends.types import Chat, GenerateRequest, JsonObjectFormat, Message, Text, Tokens
from tests.backends.child.letters import EOS, Bytes

LIMIT = 64


def make_sequence(
    identifier: int, index: int, request: GenerateRequest, ids: list[int], constraint: Constraint | None
) -> Sequence:
    return Sequence(request=identifier, index=index, tenant="", tokens=ids, num_prompt=len(ids), work=constraint)


def preparer(make: MakeSequence[Sequence] | None = make_sequence) -> Preparer[Sequence]:
    return Preparer(Bytes(), None, LIMIT, make)


def ask(prompt: Text | Tokens | Chat, **changes: object) -> GenerateRequest:
    return GenerateRequest(id="r", model="m", prompt=prompt, **changes)


def test_every_choice_has_a_prompt_and_a_constraint_of_its_own() -> None:
    prepared = preparer().prepare(7, ask(Text("ab"), n=3, response_format=JsonObjectFormat()))
    assert [(s.request, s.index, s.tokens) for s in prepared.sequences] == [(7, index, [97, 98]) for index in range(3)]
    assert len({id(s.tokens) for s in prepared.sequences}) == 3
    for sequence in prepared.sequences[1:]:
        sequence.work.mask()
        sequence.work.accept(ord("{"))
    first = prepared.sequences[0].work
    assert first.mask()[ord("{") // 32] >> ord("{") % 32 & 1  # still at its beginning
    assert len(prepared.answers) == 3


@pytest.mark.parametrize(
    ("request_", "error", "param", "message"),
    [
        (ask(Text("")), Rejected, "prompt", "empty"),
        (ask(Text("a" * 64)), ContextOverflow, "prompt", "64 tokens, and the prompt has 64 tokens"),
        (ask(Text("a" * 20_000)), ContextOverflow, "prompt", "20000 characters"),
        (ask(Chat(messages=(Message(role="user", content="a" * 64),))), ContextOverflow, "messages", "64 tokens"),
        (ask(Tokens((1, 257))), Rejected, "prompt", "token id 257"),
        (ask(Text("a"), stop_token_ids=(-1,)), Rejected, "stop_token_ids", "token id -1"),
        (ask(Text("a"), n=129), Rejected, "n", "n is 129, at most 128"),
    ],
)
def test_what_cannot_be_served_is_refused_by_name(
    request_: GenerateRequest, error: type[Rejected], param: str, message: str
) -> None:
    with pytest.raises(error, match=message) as caught:
        preparer().prepare(1, request_)
    assert (type(caught.value), caught.value.param) == (error, param)


def test_a_prompt_that_fills_the_context_can_still_be_scored() -> None:
    assert preparer().prepare(1, ask(Text("a" * LIMIT), max_tokens=0)).sequences[0].num_prompt == LIMIT


def test_a_model_that_only_embeds_refuses_to_generate_and_still_reads_text() -> None:
    only_embeds = preparer(make=None)
    with pytest.raises(Unsupported, match="makes embeddings only"):
        only_embeds.prepare(1, ask(Text("a")))
    assert only_embeds.tokens_of(Text("ab")) == [97, 98]


def test_bos_comes_once_before_a_conversation() -> None:
    class WithBos(Bytes):
        bos, adds_bos = EOS, True

    for vocabulary, expected in [(Bytes(), 0), (WithBos(), 1)]:
        ids = Preparer(vocabulary, None, LIMIT, make_sequence).tokens_of(Chat(messages=(Message(role="user", content="a"),)))
        assert ids.count(EOS) == expected
        assert bytes(ids[expected:]).startswith(b"<|im_start|>user")


@pytest.mark.parametrize(
    ("echo", "logprobs", "ids", "scored"),
    [(True, 0, [1, 2], True), (True, None, [1, 2], False), (False, 3, [1, 2], False), (True, 0, [1], False)],
)
def test_a_prompt_is_scored_if_echoed_with_logprobs(echo: bool, logprobs: int | None, ids: list[int], scored: bool) -> None:
    assert scores_prompt(ask(Text("a"), echo=echo, logprobs=logprobs), ids) is scored
