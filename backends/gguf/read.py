"""Read and check a GGUF model before any native code sees it: the way into this package.

The file is not trusted: the header is parsed within `Limits`, then its meaning is checked as strictly as llama.cpp asserts it.
The tensor data are never read. Whoever opens the path again later compares `Shard.identity` to know that it is still that file.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from backends.gguf.errors import GgufError, shown
from backends.gguf.files import naming, open_regular
from backends.gguf.header import Header, parse_header
from backends.gguf.hyperparameters import check_model, check_projector
from backends.gguf.kinds import Kind, check_kind
from backends.gguf.layout import TensorInfo, place_tensors
from backends.gguf.limits import Limits
from backends.gguf.model import GgufFile, Shard
from backends.gguf.reader import Cursor
from backends.gguf.splits import Split, check_shard, shard_paths, split_of
from backends.gguf.vocabulary import check_vocabulary


@dataclass(frozen=True, slots=True)
class Guard:
    """How strict to be. `within` is the folder that files (and what links point to) must lie in; `clock` tells seconds."""

    limits: Limits = field(default_factory=Limits)
    within: Path | None = None
    check_architecture: bool = True
    clock: Callable[[], float] = time.monotonic


def read_gguf(path: str | Path, *, kind: Kind = "model", arrays: bool = True, guard: Guard | None = None) -> GgufFile:
    """Read the header of a GGUF file, and of all other parts when it is the first of several.

    Args:
        path: the file.
        kind: what the file must be for: a language model, an `mmproj` (image or audio projector) or a LoRA `adapter`.
        arrays: keep the content of arrays above 1,024 elements. False is two to three times as fast and small, but checks only
            types and lengths of the vocabulary: good for listing, not for handing the file to native code.
        guard: limits and policies; the defaults refuse architectures that the linked llama.cpp does not implement.

    Raises:
        GgufError: the file (named in the message) is missing, not a regular file, malformed, hostile, truncated, above a limit,
            of another kind, or took too long to read.
    """
    guard = guard or Guard()
    path, deadline = Path(path), guard.clock() + guard.limits.seconds
    with naming(path):
        header, first, tensors = _read_shard(path, 0, arrays, guard, deadline)
        split = split_of(header)
        paths = shard_paths(path, split, guard.limits.shards) if split else [path]
        has_weights = bool(tensors) or split is not None
        _check_meaning(header, kind, has_weights=has_weights, check_architecture=guard.check_architecture)
    shards, all_tensors = [first], list(tensors)
    if split:
        for number, part in enumerate(paths[1:], start=1):
            with naming(part):
                part_header, shard, tensors = _read_shard(part, number, arrays, guard, deadline)
                check_shard(split_of(part_header), Split(number, split.count, split.tensors))
            shards.append(shard)
            all_tensors += tensors
        with naming(path):
            _check_together(all_tensors, split.tensors)
    return GgufFile(
        version=header.version,
        alignment=header.alignment,
        metadata=MappingProxyType(header.metadata),
        value_types=MappingProxyType(header.value_types),
        tensors=tuple(all_tensors),
        shards=tuple(shards),
    )


def _check_meaning(header: Header, kind: Kind, *, has_weights: bool, check_architecture: bool) -> None:
    architecture = check_kind(header, kind, check_architecture=check_architecture)
    check_model(header, architecture, is_complete=kind == "model" and has_weights)
    if kind == "mmproj":
        check_projector(header)
    check_vocabulary(header)


def _read_shard(
    path: Path, number: int, arrays: bool, guard: Guard, deadline: float
) -> tuple[Header, Shard, tuple[TensorInfo, ...]]:
    with open_regular(path, guard.within) as (fd, identity):
        header = parse_header(Cursor(fd, identity.size, guard.limits, deadline, guard.clock), arrays=arrays)
    tensors = place_tensors(header, identity.size, number)
    return header, Shard(path, identity, header.data_offset), tensors


def _check_together(tensors: list[TensorInfo], expected: int) -> None:
    if len(tensors) != expected:
        raise GgufError(f"all parts together hold {len(tensors):,} tensors, but split.tensors.count is {expected:,}")
    seen: set[str] = set()
    for tensor in tensors:
        if tensor.name in seen:
            raise GgufError(f"tensor {shown(tensor.name)} is in two parts, the second is part {tensor.shard + 1}")
        seen.add(tensor.name)
