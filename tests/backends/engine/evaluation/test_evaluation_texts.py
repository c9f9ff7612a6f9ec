"""The texts of an evaluation."""

from pathlib import Path

import pytest

from backends.child.errors import LoadError
from backends.engine.evaluation.texts import builtin_texts, read_texts


def test_every_python_has_two_texts_that_fill_the_default_windows() -> None:
    texts = builtin_texts()
    assert len(texts) == 2
    assert all(len(text) > 50_000 for text in texts.values())
    assert builtin_texts() == texts


def test_files_are_read_whole_in_their_order(tmp_path: Path) -> None:
    (tmp_path / "b.txt").write_text("smörgås\n", "utf-8")
    (tmp_path / "a.txt").write_text("second", "utf-8")
    names = [str(tmp_path / name) for name in ("b.txt", "a.txt")]
    assert list(read_texts(names).items()) == list(zip(names, ("smörgås\n", "second"), strict=True))


def test_of_a_huge_file_the_beginning_is_read_and_half_a_character_dropped(tmp_path: Path) -> None:
    file = tmp_path / "huge.txt"
    file.write_bytes(b"-" + "é".encode() * (8 * 1024**2))
    (text,) = read_texts([str(file)]).values()
    assert text == "-" + "é" * (8 * 1024**2 - 1)


def test_what_is_no_text_is_refused_by_its_name(tmp_path: Path) -> None:
    with pytest.raises(LoadError, match=r"nothing.txt' cannot be read: No such file or directory"):
        read_texts(["nothing.txt"])
    (tmp_path / "x").write_bytes(b"abc\xff")
    with pytest.raises(LoadError, match=r"x' is not UTF-8 at byte 3"):
        read_texts([str(tmp_path / "x")])
