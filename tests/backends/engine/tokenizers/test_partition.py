"""Special tokens are cut out of text: the longest first, wherever they are."""

from hypothesis import given
from hypothesis import strategies as st

from backends.engine.tokenizers.partition import Partition


def test_text_between_names_is_kept() -> None:
    partition = Partition({"<a>": 1, "<b>": 2})
    assert partition.split("x<a><b> y<a>") == ["x", 1, 2, " y", 1]
    assert partition.split("<a") == ["<a"]
    assert partition.split("") == []


def test_the_longest_name_is_cut_out_first_even_behind_a_shorter_one() -> None:
    assert Partition({"ab": 1, "bcd": 2}).split("abcd") == ["a", 2]


def test_a_run_is_cut_from_its_beginning() -> None:
    assert Partition({"\n": 1, "\n\n": 2, "\n\n\n\n": 4}).split("\n" * 7) == [4, 2, 1]


def test_length_counts_bytes() -> None:
    assert Partition({"abc": 1, "cÀÀ": 2}).split("abcÀÀ") == ["ab", 2]


def test_of_names_of_one_length_the_leftmost_comes_first() -> None:
    assert Partition({"bc": 1, "ab": 2}).split("abc") == [2, "c"]


def test_names_are_no_patterns() -> None:
    assert Partition({"<|a|>": 1, ".*": 2, "(": 3}).split("<|a|>b.*(") == [1, "b", 2, 3]


def test_an_empty_name_is_never_found() -> None:
    assert Partition({"": 1, "a": 2}).split("ba") == ["b", 2]


def test_thousands_of_names_that_begin_alike_are_told_apart() -> None:
    partition = Partition({f"<unused{number}>": number for number in range(6_000)})
    assert partition.split("<unused17><unused5999><unused6000><unused5>") == [17, 5999, "<unused6000>", 5]


def test_a_text_of_all_names_is_cut_at_each() -> None:
    names = {f"<unused{number}>": number for number in range(6_000)}
    assert Partition(names).split("".join(names)) == list(names.values())


@given(
    st.dictionaries(st.text("ab<>\n", min_size=1, max_size=5), st.integers(0, 999), max_size=8), st.text("ab<>\nc", max_size=60)
)
def test_nothing_is_lost_and_no_name_is_left(names: dict[str, int], text: str) -> None:
    names = {name: index for index, name in enumerate(names)}
    spelled = {token: name for name, token in names.items()}
    parts = Partition(names).split(text)
    assert "".join(spelled[part] if isinstance(part, int) else part for part in parts) == text
    assert not any(name in part for part in parts if isinstance(part, str) for name in names)
