"""From events to deltas: every choice ends once, and nothing behind its end is seen or counted."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.child.prepare import Prepared
from backends.child.sequence import Sequence
from backends.child.ticket import Ticket
from backends.child.work import PromptScored, Sampled, Scored
from backends.text.answer import Answer
from backends.types import Delta, GenerateRequest, Text


def piece(token: int) -> bytes:
    return bytes([token])


def ticket_of(n: int = 1, prompt: bytes = b"abc", **changes: object) -> Ticket[Sequence]:
    request = GenerateRequest(id="r", model="m", prompt=Text(prompt.decode()), n=n, **changes)
    scores = request.echo and request.logprobs is not None
    sequences = [
        Sequence(request=1, index=i, tenant="", tokens=list(prompt), num_prompt=len(prompt), all_logits=scores)
        for i in range(n)
    ]
    return Ticket(request, Prepared(sequences, [Answer(i, request.stop) for i in range(n)]), piece, piece)


def sample(ticket: Ticket[Sequence], index: int, text: str, finish: str | None = None) -> tuple[list[Delta], list[Sequence]]:
    """Events of one token per character, the last with `finish`; what comes of them, and who is let go."""
    deltas, let_go = [], []
    for at, character in enumerate(text):
        event = Sampled(ticket.sequences[index], ord(character), finish=finish if at == len(text) - 1 else None)
        new, ended = ticket.sampled(event)
        deltas += new
        let_go += [ended] if ended else []
    return deltas, let_go


def text_of(deltas: list[Delta], index: int = 0) -> str:
    return "".join(delta.text for delta in deltas if delta.index == index)


@pytest.mark.parametrize("n", [1, 2])
@pytest.mark.parametrize("finish", [None, "length", "stop", "done"])
def test_tokens_behind_a_stop_string_are_ignored(n: int, finish: str | None) -> None:
    ticket = ticket_of(n, stop=("!",))
    deltas, let_go = sample(ticket, 0, "ab!cd!", finish)
    assert (text_of(deltas), [delta.finish for delta in deltas if delta.finish]) == ("ab", ["stop"])
    assert let_go == [ticket.sequences[0]]
    assert ticket.is_done == (n == 1)
    if n == 2:
        deltas += sample(ticket, 1, "xyz", "length")[0]
    assert deltas[-1].usage.completion_tokens == 3 * n


def test_an_engine_that_ended_the_sequence_itself_is_not_told_to() -> None:
    ticket = ticket_of(stop=("!",))
    deltas, let_go = sample(ticket, 0, "ab!", "length")
    assert (text_of(deltas), deltas[-1].finish, let_go) == ("ab", "stop", [])


def test_tokens_behind_the_end_of_the_engine_are_ignored() -> None:
    ticket = ticket_of(2)
    deltas = [*sample(ticket, 0, "ab", "stop")[0], *sample(ticket, 0, "cd", "stop")[0]]
    assert (text_of(deltas), len([delta for delta in deltas if delta.finish])) == ("a", 1)
    assert sample(ticket, 1, "x", "done")[0][-1].usage.completion_tokens == 3


@given(st.lists(st.tuples(st.integers(0, 2), st.text("ab!", min_size=1, max_size=6)), max_size=12), st.booleans())
def test_choices_end_once_and_usage_comes_with_the_last(steps: list[tuple[int, str]], has_stop: bool) -> None:
    ticket = ticket_of(3, stop=("!",) if has_stop else ())
    deltas = [delta for index, text in steps for delta in sample(ticket, index, text)[0]]
    for index in range(3):
        deltas += sample(ticket, index, "a", "length")[0]
    assert ticket.is_done
    counted = 0
    for index in range(3):
        whole = "".join(text for at, text in steps if at == index) + "a"
        seen = whole.partition("!")[0] if has_stop else whole
        assert text_of(deltas, index) == seen
        counted += len(seen) + (has_stop and "!" in whole)
        assert len([delta for delta in deltas if delta.index == index and delta.finish]) == 1
    assert [delta.usage is not None for delta in deltas] == [False] * (len(deltas) - 1) + [True]
    assert deltas[-1].usage.completion_tokens == counted


def scored(ticket: Ticket[Sequence], index: int, *spans: tuple[int, int]) -> tuple[list[Delta], list[Sequence]]:
    deltas, let_go = [], []
    for start, end in spans:
        scores = [Scored(-float(at), ()) for at in range(start, end)]
        new, ended = ticket.prompt_scored(PromptScored(ticket.sequences[index], start, scores))
        deltas += new
        let_go += [ended] if ended else []
    return deltas, let_go


# After a preemption the prompt is scored from its start, in pieces of any size; its last token begins a piece of no scores.
@pytest.mark.parametrize(
    "spans",
    [((1, 6), (6, 6)), ((1, 3), (3, 6)), ((1, 3), (1, 3), (3, 6)), ((1, 4), (1, 2), (2, 6), (6, 6)), ((1, 6), (1, 3), (3, 6))],
)
@pytest.mark.parametrize("max_tokens", [0, 2])
def test_an_echo_comes_once_with_one_score_for_each_token(spans: tuple[tuple[int, int], ...], max_tokens: int) -> None:
    ticket = ticket_of(2, b"prompt", echo=True, logprobs=0, max_tokens=max_tokens)
    assert ticket.echo() == []
    for index in range(2):
        deltas, let_go = scored(ticket, index, *spans)
        (echo,) = [delta for delta in deltas if delta.text]
        assert (echo.text, [token.logprob for token in echo.logprobs]) == ("prompt", [None, -1.0, -2.0, -3.0, -4.0, -5.0])
        assert let_go == ([] if max_tokens else [ticket.sequences[index]])
        deltas += sample(ticket, index, "ab", "length")[0]
        assert text_of(deltas, index) == ("promptab" if max_tokens else "prompt")
        assert len([delta for delta in deltas if delta.finish]) == 1
    assert deltas[-1].usage.completion_tokens == 2 * max_tokens
