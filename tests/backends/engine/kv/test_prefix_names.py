"""Names are equal exactly when everything that the content depends on is."""

import subprocess
import sys

from hypothesis import given
from hypothesis import strategies as st

from backends.engine.kv.names import Namer, common_blocks


def names(tokens: list[int], *, block: int = 4, lineage: str = "", tenant: str = "", adapter: str = "") -> list[bytes]:
    namer = Namer(block, lineage)
    result = [namer.root(tenant, adapter)]
    namer.extend(result, tokens, len(tokens) // block)
    return result


def test_a_name_depends_on_all_that_the_content_depends_on() -> None:
    tokens = list(range(8))
    all_names = [
        names(tokens),
        names(tokens, tenant="a"),
        names(tokens, adapter="a"),
        names(tokens, lineage="a"),
        names(tokens, tenant="ab", adapter="c"),
        names(tokens, tenant="a", adapter="bc"),
        names(tokens, tenant="\ud800"),
        names(tokens, block=2)[::2],
    ]
    assert len({chain[2] for chain in all_names}) == len(all_names)


def test_a_name_depends_on_everything_before_the_block() -> None:
    assert names([1, 2, 3, 4, 5, 6, 7, 8])[2] != names([1, 2, 3, 9, 5, 6, 7, 8])[2]


def test_names_are_the_same_in_another_process() -> None:
    code = (
        "from backends.engine.kv.names import Namer; n = Namer(2, 'q4'); k = [n.root('t', '')];"
        "n.extend(k, [1, 2, 70000, 4], 2); print(k[2].hex())"
    )
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
    assert printed == names([1, 2, 70000, 4], block=2, lineage="q4", tenant="t")[2].hex()


def test_names_can_be_computed_piece_by_piece() -> None:
    tokens = list(range(40))
    namer = Namer(4, "")
    result = [namer.root("", "")]
    for count in (0, 3, 3, 10, 2):
        namer.extend(result, tokens, count)
    assert result == names(tokens)


@given(st.lists(st.integers(0, 1), max_size=40), st.lists(st.integers(0, 1), max_size=40), st.integers(1, 4))
def test_common_blocks_counts_the_full_blocks_in_common(a: list[int], b: list[int], block: int) -> None:
    shared = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    assert common_blocks(names(a, block=block), names(b, block=block)) == shared // block


def test_nothing_is_common_to_different_tenants() -> None:
    assert common_blocks(names([1, 2, 3, 4], tenant="a"), names([1, 2, 3, 4], tenant="b")) == -1
