"""What the engine knows about a sequence: its bounds, and drafts that keep to them."""

import pytest

from backends.child.ending import ending
from backends.child.sequence import Sequence
from backends.engine.sampling.state import RowState
from backends.engine.sampling.work import Work
from backends.engine.speculation.drafter import Drafter
from backends.text.constraint import Compiler, Constraint
from backends.types import Chat, GenerateRequest, JsonSchemaFormat, Sampling

END = 256


def sequence_of(generated: int, **bounds: int) -> tuple[Sequence, Work]:
    row = RowState(Sampling(temperature=0), [], 0)
    work = Work(
        row=row,
        max_new=bounds.get("max_new", 100),
        limit=bounds.get("limit", 1000),
        end_tokens=frozenset({END}),
        drafter=Drafter(frozenset({END})),
    )
    tokens = [1, 2, 3, 4] * 10
    return Sequence(request=1, index=0, tenant="", tokens=tokens, num_prompt=40 - generated, work=work), work


@pytest.mark.parametrize(
    ("bounds", "drafted"),
    [({}, 4), ({"max_new": 13}, 2), ({"max_new": 11}, 0), ({"limit": 42}, 1), ({"limit": 41}, 0), ({"limit": 40}, 0)],
    ids=str,
)
def test_a_draft_and_the_token_behind_it_stay_within_the_bounds(bounds: dict[str, int], drafted: int) -> None:
    sequence, work = sequence_of(10, **bounds)
    draft = work.propose(sequence)
    assert draft == [1, 2, 3, 4][:drafted]
    for token in [*draft, 9]:
        assert ending(sequence, work) in ({None} if "limit" not in bounds or bounds["limit"] > 40 else {"length"})
        sequence.tokens.append(token)


def test_without_a_drafter_nothing_is_guessed() -> None:
    sequence, work = sequence_of(10)
    work.drafter = None
    assert work.propose(sequence) == []


def test_what_a_grammar_leaves_no_choice_about_is_guessed_first() -> None:
    sequence, work = sequence_of(10)
    assert work.constraint is None
    work.row.constraint = _constraint()
    assert work.constraint is work.row.constraint
    for token in b'{"na':
        work.row.accept(token)
    assert bytes(work.propose(sequence)).startswith(b'me":')
    for token in b'me": "x", "':
        work.row.accept(token)
    assert bytes(work.propose(sequence)) == b"descript"
    assert ending(sequence, work) is None


def _constraint() -> Constraint:
    schema = {
        "type": "object",
        "properties": {"name": {"type": "string"}, "description": {"type": "string"}},
        "required": ["name", "description"],
        "additionalProperties": False,
    }
    compiler = Compiler([bytes([i]) for i in range(256)] + [b"<|end|>"], {END}, [END], list)
    request = GenerateRequest(id="r", model="m", prompt=Chat(messages=()), response_format=JsonSchemaFormat(schema=schema))
    constraint = compiler.compile(request)
    assert constraint is not None
    return constraint
