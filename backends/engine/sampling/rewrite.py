"""What a request changes in the logits before anything is chosen: masks, banned ids, bias and penalties.

All rows together, in place; rows that ask for nothing are not touched. Order and meaning: `backends.types.Sampling`.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from backends.engine.sampling.history import Counts, Ids
from backends.engine.sampling.state import Row
from backends.text.constraint import Mask
from backends.types import Sampling


def rewrite(logits: Tensor, rows: Sequence[Row]) -> None:
    """Change the logits of some rows.

    Args:
        logits: [any, vocab] float32; `rows` say which of them is whose.
    """
    if masks := [(row.at, row.mask) for row in rows if row.mask is not None]:
        _mask(logits, masks)
    if bans := [(row.at, row.state.banned) for row in rows if row.state.banned.size]:
        logits[_places(logits, bans)] = -torch.inf
    if biases := [(row.at, row.state.bias_ids) for row in rows if row.state.bias_ids.size]:
        values = np.concatenate([row.state.bias_values for row in rows if row.state.bias_ids.size])
        logits[_places(logits, biases)] += torch.from_numpy(values).to(logits.device)
    if seen := [(row, row.state.history.table(row.ahead)) for row in rows if row.state.history is not None]:
        places = _places(logits, [(row.at, ids) for row, (ids, _) in seen])
        settings = [row.state.sampling for row, _ in seen]
        logits[places] = _penalised(logits[places], settings, [counts for _, (_, counts) in seen])


def _mask(logits: Tensor, masks: list[tuple[int, Mask]]) -> None:
    """Words of bits travel to the device: 32 times fewer bytes than the floats which they become there."""
    device, vocab = logits.device, logits.shape[1]
    words = np.zeros((len(masks), (vocab + 31) // 32), np.uint32)  # tokens behind the end of a mask are forbidden
    for row, (_, mask) in zip(words, masks, strict=True):
        row[: len(mask)] = mask[: len(row)]
    octets = torch.from_numpy(words.view(np.uint8)).to(device)
    shifts = torch.arange(8, dtype=torch.uint8, device=device)
    bits = (torch.arange(256, dtype=torch.uint8, device=device).unsqueeze(-1) >> shifts) & 1
    addends = torch.where(bits.bool(), 0.0, -torch.inf)  # [256, 8]: what an octet adds to its eight logits
    at = torch.tensor([at for at, _ in masks], device=device)
    logits.index_add_(0, at, addends[octets.int()].flatten(1)[:, :vocab])


def _penalised(values: Tensor, settings: list[Sampling], counts: list[Counts]) -> Tensor:
    penalties = np.array([[s.repetition_penalty, s.frequency_penalty, s.presence_penalty] for s in settings], np.float32)
    repeated = torch.from_numpy(np.repeat(penalties, [each.size for each in counts], axis=0)).to(values.device)
    repetition, frequency, presence = repeated.unbind(1)
    count = torch.from_numpy(np.concatenate(counts)).to(values.device)
    values = torch.where(values > 0, values / repetition, values * repetition)
    return values - frequency * count - presence * (count > 0)


def _places(logits: Tensor, ids: list[tuple[int, Ids]]) -> tuple[Tensor, Tensor]:
    """Index pairs (row, id) of several rows, each with ids of its own."""
    rows: npt.NDArray[np.int64] = np.repeat([at for at, _ in ids], [each.size for _, each in ids])
    columns = np.concatenate([each for _, each in ids])
    return torch.from_numpy(rows).to(logits.device), torch.from_numpy(columns).to(logits.device)
