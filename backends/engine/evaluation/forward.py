"""Reads one window as the engine reads a prompt and an answer, with the answer's tokens given."""

from collections.abc import Sequence

import torch

from backends.engine.build import Engine
from kernels.batch import DecodeBatch, PrefillChunk

_ROWS = 32


def scored(tokens: Sequence[int]) -> tuple[list[int], list[int]]:
    """The tokens of a window's second half that predict another one, and the tokens they predict: the same, one further on.

    llama.cpp's `llama-perplexity` scores the same places.
    """
    half = len(tokens) // 2
    return list(tokens[half:-1]), list(tokens[half + 1 :])


def read_window(engine: Engine, tokens: Sequence[int], *, decode: bool) -> torch.Tensor:
    """Compute the final hidden states behind the scored tokens of a window. Overwrites the cache.

    The first half is a prompt: only its keys and values are computed. The second is read by the prefill weights as another part
    of the prompt, or with `decode` by the decode weights, several rows at once, as the engine verifies drafts.

    Args:
        engine: with a cache for one window at least.

    Returns:
        [len(tokens) - len(tokens) // 2 - 1, hidden] float32.
    """
    model, half, rest = engine.model, len(tokens) // 2, scored(tokens)[0]
    tables = tuple(torch.arange(pool.cache.shape[0]) for pool in engine.pools)
    attention = model.ops.prefill([PrefillChunk(0, half, 0, tables)])
    model.run(model.weights.prefill, torch.tensor(tokens[:half]), attention, torch.empty(0, dtype=torch.int64))
    if not decode:
        attention = model.ops.prefill([PrefillChunk(0, len(rest), half, tables)])
        return model.run(model.weights.prefill, torch.tensor(rest), attention, None).clone()
    states = []
    for first in range(0, len(rest), _ROWS):
        part = torch.tensor(rest[first : first + _ROWS])
        positions = torch.arange(half + first, half + first + len(part))
        batch = DecodeBatch(positions, tuple(table.repeat(len(part), 1) for table in tables), len(tokens))
        attention = model.ops.decode(batch)
        states.append(model.run(model.weights.decode, part, attention, None).clone())
    return torch.cat(states)
