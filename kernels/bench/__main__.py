"""`python -m kernels.bench`: checks every operator, then times it beside torch and beside what the GPU can do.

Prints a table and, for programs, one line of JSON. Without a GPU, `--check` checks small sizes in Triton's interpreter.
"""

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass

import torch

from kernels.bench import attention, products, small
from kernels.bench.case import Case, Work, error
from kernels.gpu.launch import interpreted

_COPIED = 1 << 30
_SIDE = 8192


@dataclass(frozen=True, slots=True)
class Roofline:
    """What the GPU does at best, as measured: bytes and floating-point operations of a second."""

    bytes_per_s: float
    flops_per_s: float

    def seconds(self, work: Work) -> float:
        """How long a computation takes at least."""
        return max(work.moved / self.bytes_per_s, work.products / self.flops_per_s)


@dataclass(frozen=True, slots=True)
class Figures:
    """One line of the table. `ratio` is torch's time by ours, `roofline` the least possible time by ours."""

    operator: str
    case: str
    error: float
    microseconds: float
    gigabytes_per_s: float
    teraflops_per_s: float
    roofline: float
    ratio: float | None


def all_cases() -> Iterator[Case]:
    """What is measured."""
    for module in (attention, products, small):
        yield from module.cases()


def seconds(function: Callable[[], object]) -> float:
    """Time a computation on the GPU: the median of many runs, with the cache cleared before each."""
    from triton.testing import do_bench

    return float(do_bench(function, warmup=50, rep=200, return_mode="median")) / 1e3


def roofline(device: torch.device, dtype: torch.dtype) -> Roofline:
    """Measure what a copy and a large product reach."""
    source = torch.empty(_COPIED, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    square = torch.randn(_SIDE, _SIDE, device=device, dtype=dtype)
    copied = 2 * _COPIED / seconds(lambda: target.copy_(source))
    return Roofline(copied, 2 * _SIDE**3 / seconds(lambda: square @ square))


def check(case: Case, work: Work) -> float:
    """Compare with the definition.

    Raises:
        SystemExit: it is off by more than it may be: a wrong kernel is not timed.
    """
    off = error(work.ours()[-work.last :], work.exact())
    if not off <= work.limit:
        sys.exit(f"{case.operator}, {case.name}: off by {off:.1e}, at most {work.limit:.1e} is allowed; nothing is timed")
    return off


def measured(case: Case, work: Work, best: Roofline) -> Figures:
    """Check, then time."""
    off, took = check(case, work), seconds(work.ours)
    return Figures(
        case.operator,
        case.name,
        off,
        took * 1e6,
        work.moved / took / 1e9,
        work.products / took / 1e12,
        best.seconds(work) / took,
        None if work.peer is None else seconds(work.peer) / took,
    )


def line(one: Figures) -> str:
    """A line of the table."""
    ratio = "" if one.ratio is None else f"{one.ratio:8.2f}"
    return (
        f"{one.operator:26} {one.case:40} {one.microseconds:10.1f} {one.gigabytes_per_s:8.0f} {one.teraflops_per_s:8.1f} "
        f"{100 * one.roofline:8.0f} % {ratio}"
    )


def main() -> None:
    """Run."""
    parser = argparse.ArgumentParser(prog="python -m kernels.bench", description=__doc__)
    parser.add_argument("--operator", help="only those whose name contains this")
    parser.add_argument("--check", action="store_true", help="check small sizes and time nothing")
    options = parser.parse_args()
    chosen = [case for case in all_cases() if (options.operator or "") in case.operator]
    if options.check:
        place, dtype = (torch.device("cpu"), torch.float16) if interpreted() else (torch.device("cuda"), torch.bfloat16)
        for case in chosen:
            sys.stdout.write(f"{case.operator}, {case.name}: off by {check(case, case.make(place, dtype, True)):.1e}\n")
        return
    if not torch.cuda.is_available():
        parser.error(f"there is no NVIDIA GPU for torch {torch.__version__}; TRITON_INTERPRET=1 with --check needs none")
    device, dtype, figures = torch.device("cuda"), torch.bfloat16, []
    best = roofline(device, dtype)
    gpu = torch.cuda.get_device_name(device)
    sys.stdout.write(f"{gpu}: copies {best.bytes_per_s / 1e9:.0f} GB/s, multiplies {best.flops_per_s / 1e12:.0f} TFLOP/s\n")
    sys.stdout.write(f"{'operator':26} {'case':40} {'us':>10} {'GB/s':>8} {'TFLOP/s':>8} {'roofline':>10} {'by torch':>8}\n")
    for case in chosen:
        figures.append(measured(case, case.make(device, dtype, False), best))
        sys.stdout.write(line(figures[-1]) + "\n")
        sys.stdout.flush()
    facts = {"gpu": gpu, "torch": torch.__version__, **asdict(best)}
    sys.stdout.write(json.dumps({**facts, "cases": [asdict(one) for one in figures]}) + "\n")


if __name__ == "__main__":
    main()
