"""From logits to tokens and their log probabilities, all on the device: nothing is read back, nothing depends on the batch.

A row is walked over a few times and never sorted: once for its peaks, once for its weight, twice to gather the candidates that
are then sorted (`kernels.gpu.candidates`); rows whose filters keep more than those are searched (`kernels.gpu.beyond`). Weights
are float64, as on the CPU, so that the same random number leads to the same token there and here.
"""

import torch
import triton
import triton.language as tl

from kernels.gpu.beyond import beyond_kernel
from kernels.gpu.candidates import decide_kernel, gather_kernel, masses_kernel
from kernels.gpu.launch import launch
from kernels.gpu.logits import largest_of, logit_of, peaks_kernel, token_of
from kernels.gpu.tuning import tuned


@triton.jit
def greedy_kernel(p_keys, p_tokens, STRETCHES: tl.constexpr, BLOCK_STRETCHES: tl.constexpr):
    """The token with the largest key of each row, one program for each; -1 where its logit is not finite."""
    i_row = tl.program_id(0).to(tl.int64)
    key = largest_of(p_keys, i_row, STRETCHES, BLOCK_STRETCHES)
    tl.store(p_tokens + i_row, tl.where(tl.abs(logit_of(key)) < float("inf"), token_of(key), -1))


@triton.jit
def score_kernel(
    p_logits, p_keys, p_sums, p_tokens, p_scores, row_stride, STRETCHES: tl.constexpr, BLOCK_STRETCHES: tl.constexpr
):
    """The log probability of one token in each row, one program for each."""
    i_row = tl.program_id(0).to(tl.int64)
    # [BLOCK_STRETCHES]
    o_stretch = i_row * STRETCHES + tl.arange(0, BLOCK_STRETCHES)
    m_stretch = tl.arange(0, BLOCK_STRETCHES) < STRETCHES
    best = logit_of(largest_of(p_keys, i_row, STRETCHES, BLOCK_STRETCHES))
    b_peaks = logit_of(tl.load(p_keys + o_stretch, mask=m_stretch, other=0))
    b_sums = tl.load(p_sums + o_stretch, mask=m_stretch, other=0.0)
    total = tl.sum(tl.where(m_stretch, b_sums * tl.exp(b_peaks - best), 0.0), 0)
    i_token = tl.load(p_tokens + i_row)
    logit = tl.load(p_logits + i_row * row_stride + tl.maximum(i_token, 0))
    tl.store(p_scores + i_row, tl.where(i_token < 0, 0.0, logit - best - tl.log(total)))


def choose(
    logits: torch.Tensor,
    temperature: torch.Tensor,
    top_k: torch.Tensor,
    top_p: torch.Tensor,
    min_p: torch.Tensor,
    uniform: torch.Tensor,
) -> torch.Tensor:
    """Choose a token for each row. Definition, and what the settings mean: `kernels.choice.choose`.

    Masks, biases and penalties come before, in the logits. A row's token depends on nothing but that row.

    Args:
        logits: [rows, vocab] float32; the rows may be apart.
        temperature: [rows] float64; 0 is greedy.
        top_k: [rows] int64; 0 is none.
        top_p: [rows] float64; 1 is none.
        min_p: [rows] float64; 0 is none.
        uniform: [rows] float64: the random number of each row's position, from 0 to 1, exclusive.

    Returns:
        [rows] int64; -1 where the largest logit is not finite.

    Raises:
        ValueError: shapes or types that do not go together.
    """
    rows, vocab = _checked(logits)
    for name, each, dtype in (
        ("temperature", temperature, torch.float64),
        ("top_k", top_k, torch.int64),
        ("top_p", top_p, torch.float64),
        ("min_p", min_p, torch.float64),
        ("uniform", uniform, torch.float64),
    ):
        if each.shape != (rows,) or each.dtype != dtype or not each.is_contiguous():
            raise ValueError(f"{name} must be {rows} numbers of {dtype}, not {list(each.shape)} of {each.dtype}")
    tokens = torch.empty(rows, dtype=torch.int64, device=logits.device)
    if rows == 0:
        return tokens
    keys, _, cut = _peaks(logits)
    gather, decide, beyond = (tuned(name, logits.device) for name in ("gather", "decide", "beyond"))
    candidates = torch.empty(rows, decide.sizes["CANDIDATES"], dtype=torch.int64, device=logits.device)
    counts = torch.empty(rows, 2, dtype=torch.int32, device=logits.device)
    masses = torch.empty(keys.shape, dtype=torch.float64, device=logits.device)
    filters, row = (temperature, top_k, top_p, min_p), (logits.stride(0), vocab)
    peaks = tuned("peaks", logits.device)
    launch(masses_kernel, (rows, keys.shape[1]), logits, keys, masses, *filters, *row, config=peaks, **cut)
    size = decide.sizes["CANDIDATES"]
    launch(gather_kernel, (rows,), logits, keys, candidates, counts, *filters, *row, config=gather, CANDIDATES=size, **cut)
    found = (keys, masses, candidates, counts, tokens)
    stretch = peaks.sizes["BLOCK"]
    launch(decide_kernel, (rows,), logits, *found, *filters, uniform, *row, config=decide, BLOCK=stretch, **cut)
    launch(beyond_kernel, (rows,), logits, keys, tokens, *filters, uniform, *row, config=beyond, **cut)
    return tokens


def greedy(logits: torch.Tensor) -> torch.Tensor:
    """Choose the largest logit of each row, of equal ones the lowest id: what `choose` does at temperature 0, in less time.

    Args:
        logits: [rows, vocab] float32; the rows may be apart.

    Returns:
        [rows] int64; -1 where the largest logit is not finite.

    Raises:
        ValueError: logits of another type or layout.
    """
    rows, _ = _checked(logits)
    tokens = torch.empty(rows, dtype=torch.int64, device=logits.device)
    if rows:
        keys, _, cut = _peaks(logits)
        launch(greedy_kernel, (rows,), keys, tokens, config=tuned("score", logits.device), **cut)
    return tokens


def score(logits: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    """Compute log probabilities, at temperature 1. Definition: `kernels.choice.score`.

    What is reported to users is of the logits as the model computed them: before masks, biases and penalties.

    Args:
        logits: [rows, vocab] float32, the largest of each row finite; the rows may be apart.
        tokens: [rows] int64.

    Returns:
        [rows] float32; -inf for what is impossible, 0 for a token below 0.

    Raises:
        ValueError: shapes or types that do not go together.
    """
    rows, _ = _checked(logits)
    if tokens.shape != (rows,) or tokens.dtype != torch.int64:
        raise ValueError(f"{rows} rows cannot have {list(tokens.shape)} tokens of {tokens.dtype}")
    scores = torch.empty(rows, dtype=torch.float32, device=logits.device)
    if rows:
        keys, sums, cut = _peaks(logits, with_sums=True)
        config = tuned("score", logits.device)
        launch(score_kernel, (rows,), logits, keys, sums, tokens, scores, logits.stride(0), config=config, **cut)
    return scores


def _checked(logits: torch.Tensor) -> tuple[int, int]:
    rows, vocab = logits.shape
    if logits.dtype != torch.float32 or logits.stride(1) != 1 or vocab == 0:
        raise ValueError(f"logits must be dense rows of float32, not {list(logits.shape)} {logits.dtype} {logits.stride()}")
    return rows, vocab


def _peaks(logits: torch.Tensor, *, with_sums: bool = False) -> tuple[torch.Tensor, torch.Tensor | None, dict[str, int]]:
    """The largest key of every stretch, the sums if wanted, and how the rows are cut, as the kernels are told."""
    rows, vocab = logits.shape
    config = tuned("peaks", logits.device)
    stretches = triton.cdiv(vocab, config.sizes["BLOCK"])
    keys = torch.empty(rows, stretches, dtype=torch.int64, device=logits.device)
    sums = torch.empty(rows, stretches, dtype=torch.float32, device=logits.device) if with_sums else None
    row = (logits.stride(0), vocab)
    launch(peaks_kernel, (rows, stretches), logits, keys, sums, *row, config=config, STRETCHES=stretches)
    return keys, sums, {"STRETCHES": stretches, "BLOCK_STRETCHES": triton.next_power_of_2(stretches)}
