"""What is asked to be embedded is checked before the engine sees it; vectors are cut as asked."""

import math
import struct

import pytest

from backends.child.embedding import shortened, token_lists
from backends.child.work import EmbedJob
from backends.errors import ContextOverflow, Rejected
from backends.types import EmbedRequest, Text, Tokens
from tests.backends.child.test_preparation import preparer


class Embedding:
    size, limit = 8, 4

    def submit(self, job: EmbedJob) -> None:
        raise AssertionError("only checked")

    def cancel(self, request: int) -> None:
        raise AssertionError("only checked")


def check(*inputs: Text | Tokens, **changes: object) -> list[list[int]]:
    request = EmbedRequest(id="e", model="m", inputs=inputs, **changes)
    return token_lists(request, Embedding(), preparer(make=None).tokens_of)


def test_inputs_become_token_lists_in_order() -> None:
    assert check(Text("ab"), Tokens((1, 2, 3, 4)), dimensions=8) == [[97, 98], [1, 2, 3, 4]]


@pytest.mark.parametrize(
    ("inputs", "changes", "error", "param", "message"),
    [
        ((Text("a"),), {"dimensions": 9}, Rejected, "dimensions", "dimensions is 9, the model's vectors have 8"),
        ((Text(""),), {}, Rejected, "input", "'input' has no tokens"),
        ((Text("a"), Text("")), {}, Rejected, "input[1]", "has no tokens"),
        ((Text("a"), Text("abcde")), {}, ContextOverflow, "input[1]", "has 5 tokens, at most 4"),
        ((Text("a"), Tokens((300,))), {}, Rejected, "input[1]", "token id 300"),
    ],
)
def test_what_cannot_be_embedded_is_refused_by_name(
    inputs: tuple[Text | Tokens, ...], changes: dict[str, object], error: type[Rejected], param: str, message: str
) -> None:
    with pytest.raises(error, match=message) as caught:
        check(*inputs, **changes)
    assert (type(caught.value), caught.value.param) == (error, param)


def test_a_shortened_vector_has_length_one_again_unless_nothing_is_left() -> None:
    vector = struct.pack("<4f", 0.6, 0.0, 0.8, 0.0)
    assert shortened(vector, None) == vector
    assert struct.unpack("<2f", shortened(vector, 2)) == (1.0, 0.0)
    assert math.isclose(math.hypot(*struct.unpack("<3f", shortened(vector, 3))), 1.0, rel_tol=1e-6)
    assert shortened(struct.pack("<2f", 0.0, 1.0), 1) == struct.pack("<f", 0.0)
