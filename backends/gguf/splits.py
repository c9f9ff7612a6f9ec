"""Models that come as several files (`name-00001-of-00003.gguf`): which files belong together, and whether they agree.

Source: `llama_split_path` and the loader's checks in llama.cpp. Only the first file carries the model's metadata.
"""

import re
from dataclasses import dataclass
from pathlib import Path

from backends.gguf.errors import GgufError
from backends.gguf.fields import demand_type, integer
from backends.gguf.header import Header

_NAME = re.compile(r"(.+)-(\d{5})-of-(\d{5})\.gguf", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Split:
    """Which part a file is: `number` counts from 0, `tensors` is the number of tensors of all parts together."""

    number: int
    count: int
    tensors: int


def split_of(header: Header) -> Split | None:
    """The part that a file says to be; None when it is whole. Raises `GgufError` when its `split.` keys are malformed."""
    demand_type(header, "split.no", "u16")
    demand_type(header, "split.count", "u16")
    demand_type(header, "split.tensors.count", "i32")
    count = integer(header, "split.count", 0, 65_535) or 0
    if count <= 1:
        return None
    number = integer(header, "split.no", 0, count - 1)
    tensors = integer(header, "split.tensors.count", 0, 2**31 - 1)
    if number is None or tensors is None:
        raise GgufError(f"split.count is {count}, but split.no or split.tensors.count is missing")
    return Split(number, count, tensors)


def shard_paths(path: Path, split: Split, limit: int) -> list[Path]:
    """All files of a model, `path` being the first. Raises `GgufError` when it is not, or named otherwise."""
    if split.number != 0:
        raise GgufError(
            f"file is part {split.number + 1} of {split.count}: open the first part, the others are found beside it"
        )
    if split.count > limit:
        raise GgufError(f"split.count {split.count:,} is above the limit of {limit:,}")
    match = _NAME.fullmatch(path.name)
    if match is None or int(match[2]) != 1 or int(match[3]) != split.count:
        raise GgufError(f"file is part 1 of {split.count}, so its name must end in '-00001-of-{split.count:05}.gguf'")
    return [path, *(path.with_name(f"{match[1]}-{part:05}-of-{split.count:05}.gguf") for part in range(2, split.count + 1))]


def check_shard(found: Split | None, expected: Split) -> None:
    """Raise `GgufError` when a later part does not say what the first one makes us expect."""
    if found != expected:
        said = "a whole file" if found is None else f"part {found.number + 1} of {found.count} with {found.tensors:,} tensors"
        raise GgufError(
            f"file says to be {said}, expected part {expected.number + 1} of {expected.count} with {expected.tensors:,} tensors"
        )
