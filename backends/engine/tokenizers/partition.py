"""Cutting text at the tokens that it names, before anything else is tokenised.

The longest names (in bytes) are cut out first, wherever they are, then the next shorter ones from what is left; this is not the
leftmost name first. Source: `tokenizer_st_partition` of llama.cpp.
"""

import re
from collections.abc import Iterator, Mapping

# Vocabularies have thousands of names that begin alike (`<unused17>`): a beginning that the text lacks rules them all out.
_BEGINNING = 4
# So many names are looked for one by one; more are looked up wherever their beginning is.
_FEW = 64


class Partition:
    """Finds a fixed set of names in texts."""

    def __init__(self, names: Mapping[str, int]) -> None:
        """Take the names with the ids of their tokens; empty names are left out."""
        self._ids = {name: token for name, token in names.items() if name}
        groups: dict[str, set[str]] = {}
        for name in self._ids:
            groups.setdefault(name[:_BEGINNING], set()).add(name)
        self._groups = [(beginning, group, {len(name) for name in group}) for beginning, group in groups.items()]

    def split(self, text: str) -> list[str | int]:
        """Cut the text into token ids and what is between them; no part is empty."""
        by_length: dict[int, list[str]] = {}
        for name in self._names_in(text):
            by_length.setdefault(len(name.encode()), []).append(name)
        parts: list[str | int] = [text] if text else []
        for _, names in sorted(by_length.items(), reverse=True):
            pattern = re.compile(f"({'|'.join(map(re.escape, names))})")
            parts = [piece for part in parts for piece in (self._cut(part, pattern) if isinstance(part, str) else (part,))]
        return parts

    def _names_in(self, text: str) -> set[str]:
        found: set[str] = set()
        for beginning, names, lengths in self._groups:
            if beginning not in text:
                continue
            if len(names) <= _FEW:
                found.update(name for name in names if name in text)
            else:
                found.update(
                    text[at : at + n] for at in _places(beginning, text) for n in lengths if text[at : at + n] in names
                )
        return found

    def _cut(self, text: str, names: re.Pattern[str]) -> list[str | int]:
        pieces = names.split(text)  # what matched is at the odd places
        return [self._ids[piece] if index % 2 else piece for index, piece in enumerate(pieces) if piece]


def _places(part: str, text: str) -> Iterator[int]:
    at = text.find(part)
    while at >= 0:
        yield at
        at = text.find(part, at + 1)
