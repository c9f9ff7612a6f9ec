"""The whole way from token bytes to deltas, with log probabilities beside the text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.text.answer import Answer
from backends.types import Delta, FinishReason

CALL = '<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>'


def _run(answer: Answer, pieces: list[bytes], reason: FinishReason = "stop", logprobs: bool = True) -> list[Delta]:
    deltas = []
    for i, piece in enumerate(pieces):
        delta = answer.push(i, piece, -float(i) if logprobs else None)
        if delta is not None:
            deltas.append(delta)
        if answer.stopped:
            break
    return [*deltas, answer.finish(reason)]


def _text(deltas: list[Delta]) -> str:
    return "".join(delta.text for delta in deltas)


def _bytes(deltas: list[Delta]) -> bytes:
    return b"".join(logprob.piece for delta in deltas for logprob in delta.logprobs)


def _split(data: bytes, sizes: list[int]) -> list[bytes]:
    pieces, at = [], 0
    for size in [*sizes, len(data)]:
        pieces.append(data[at : at + size])
        at += size
    return [piece for piece in pieces if piece]


@given(
    st.text(st.sampled_from("ab é漢🧑\n"), max_size=20),
    st.lists(st.integers(1, 4), max_size=30),
    st.lists(st.text("ab é", min_size=1, max_size=3), max_size=2),
)
def test_log_probabilities_cover_exactly_the_visible_text(text: str, sizes: list[int], stops: list[str]) -> None:
    pieces = _split(text.encode(), sizes)
    answer = Answer(0, stops)
    deltas = _run(answer, pieces)
    shown, covered = _text(deltas).encode(), _bytes(deltas)
    ids = [logprob.id for delta in deltas for logprob in delta.logprobs]
    assert ids == list(range(len(ids)))
    assert covered.startswith(shown)
    if not answer.stopped:
        assert covered == shown == text.encode()
    elif ids:
        assert len(covered) - len(pieces[ids[-1]]) < len(shown)


@given(st.binary(max_size=12), st.lists(st.integers(1, 3), max_size=12), st.lists(st.sampled_from(["a", "ab"]), max_size=1))
def test_every_token_is_reported_and_counted_once_whatever_its_bytes(data: bytes, sizes: list[int], stops: list[str]) -> None:
    pieces = _split(data, sizes)
    answer = Answer(0, stops)
    deltas = _run(answer, pieces, "length")
    if not answer.stopped:
        assert _bytes(deltas) == data
        assert _text(deltas) == data.decode("utf-8", "replace")
        assert sum(delta.tokens for delta in deltas) == len(pieces)


def test_plain_text_passes_at_once() -> None:
    answer = Answer(2)
    assert answer.push(7, b"Hi") == Delta(2, "Hi", 1)
    assert answer.push(8, "é".encode()[:1]) is None
    assert answer.push(9, "é".encode()[1:]) == Delta(2, "é", 2)
    assert answer.finish("stop") == Delta(2, finish="stop")


def test_a_held_back_token_brings_its_log_probability_with_its_text() -> None:
    answer = Answer(0, ["END"])
    assert answer.push(1, b"E", -1.0) is None
    delta = answer.push(2, b"x", -2.0)
    assert delta is not None
    assert (delta.text, delta.tokens, [(lp.id, lp.logprob) for lp in delta.logprobs]) == ("Ex", 2, [(1, -1.0), (2, -2.0)])


def test_tokens_cut_by_a_stop_string_are_counted_but_not_reported() -> None:
    answer = Answer(0, ["END"])
    deltas = _run(answer, [b"one ", b"x E", b"N", b"D y", b"never"])
    assert (answer.stopped, answer.stop_match, _text(deltas)) == (True, "END", "one x ")
    assert _bytes(deltas) == b"one x E"
    assert sum(delta.tokens for delta in deltas) == 4


def test_the_beginning_of_a_stop_string_is_shown_when_the_budget_ends() -> None:
    deltas = _run(Answer(0, ["END"]), [b"a E", b"N"], "length")
    assert (_text(deltas), deltas[-1].finish, _bytes(deltas)) == ("a EN", "length", b"a EN")


@pytest.mark.parametrize("size", [1, 3, 100])
def test_a_call_ends_the_answer_with_tool_calls(size: int) -> None:
    data = f"Wait. {CALL}".encode()
    deltas = _run(Answer(0, (), "hermes", ["f"]), [data[i : i + size] for i in range(0, len(data), size)])
    calls = [call for delta in deltas for call in delta.tool_calls]
    assert _text(deltas) == "Wait. "
    assert calls[0].name == "f"
    assert "".join(call.arguments for call in calls) == '{"a": 1}'
    assert deltas[-1].finish == "tool_calls"
    assert _bytes(deltas).startswith(b"Wait. ")
    assert len(_bytes(deltas)) - len("Wait. ") < size


def test_tokens_of_a_call_are_not_reported_beside_the_text_that_follows() -> None:
    deltas = _run(Answer(0, (), "hermes"), [b"A", CALL[:-1].encode(), b"> B", b"C"])
    assert (_text(deltas), _bytes(deltas)) == ("A BC", b"A> BC")


def test_a_call_cut_by_the_budget_ends_with_length() -> None:
    deltas = _run(Answer(0, (), "hermes"), [CALL[:40].encode()], "length")
    assert deltas[-1].finish == "length"
    assert deltas[0].tool_calls[0].name == "f"


def test_without_tools_on_offer_a_call_is_text() -> None:
    deltas = _run(Answer(0), [CALL.encode()])
    assert (_text(deltas), deltas[-1].finish) == (CALL, "stop")


def test_a_stop_string_before_a_call_leaves_no_call() -> None:
    deltas = _run(Answer(0, ["\n{"], "hermes"), [CALL[:11].encode(), CALL[11:].encode()])
    assert (_text(deltas), deltas[-1].finish) == ("<tool_call>", "stop")


def test_a_stop_string_inside_of_arguments_is_a_stop_and_no_finished_call() -> None:
    answer = Answer(0, ("Paris",), "hermes", ("weather",))
    for piece in (b'<tool_call>{"name": "weather", "arguments": {"city": "', b"Par", b"is"):
        answer.push(1, piece)
    assert answer.stopped
    assert answer.finish("stop").finish == "stop"


def test_a_stop_string_behind_a_finished_call_leaves_it_a_call() -> None:
    answer = Answer(0, ("END",), "hermes", ("weather",))
    for piece in (b'<tool_call>{"name": "weather", "arguments": {}}</tool_call>', b"END"):
        answer.push(1, piece)
    assert answer.stopped
    assert answer.finish("stop").finish == "tool_calls"
