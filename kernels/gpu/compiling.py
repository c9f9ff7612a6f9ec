"""Compiling every operator for every GPU that it is meant for, and looking at what came out: `python -m kernels.gpu.compiling`.

Needs no GPU. Each line tells what one launch takes: shared memory, registers, bytes spilled, and which tensor-core instructions
it uses. A launch that spills, needs more shared memory than the GPU has, or computes products without tensor cores is a fault.
"""

import argparse
import importlib
import os
import pkgutil
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

import triton

from kernels.gpu import cases
from kernels.gpu.case import Case
from kernels.gpu.launch import Compiled, compiling, interpreted
from kernels.gpu.tuning import taken, untaken

TARGETS = (80, 87, 89, 90, 100)
"""A100, Jetson Orin, L4 and RTX 40, H100 and H200, B200."""

SHARED_MEMORY = {80: 163 << 10, 87: 163 << 10, 89: 99 << 10, 90: 227 << 10, 100: 227 << 10}
"""Bytes that one program may use."""

_TENSOR_CORES = ("mma.sync", "wgmma.mma_async", "tcgen05.mma")
_USAGE = re.compile(r"REG:(\d+) STACK:(\d+) SHARED:(\d+) LOCAL:(\d+)")


@dataclass(frozen=True, slots=True)
class Report:
    """What one launch takes. `shared` and `spilled` are bytes."""

    operator: str
    case: str
    kernel: str
    parameters: str
    target: int
    shared: int
    registers: int
    spilled: int
    tensor_cores: str
    faults: list[str]

    def __str__(self) -> str:
        parts = [f"{self.shared} B shared", f"{self.registers} registers", f"{self.spilled} B spilled"]
        parts += [self.tensor_cores or "no tensor cores", *(f"FAULT: {fault}" for fault in self.faults)]
        return f"sm_{self.target} {self.operator}, {self.case}: {self.kernel} takes {', '.join(parts)}"


def operators() -> dict[str, Callable[[], Iterator[Case]]]:
    """All modules of `kernels.gpu.cases`, by name."""
    names = sorted(module.name for module in pkgutil.iter_modules(cases.__path__))
    return {name: importlib.import_module(f"{cases.__name__}.{name}").cases for name in names}


def compile_operator(operator: str, target: int) -> Iterator[Report]:
    """Compile all cases of one operator that are meant for a target."""
    for case in operators()[operator]():
        if target < case.least:
            continue
        seen: list[Compiled] = []
        with compiling(target, seen.append):
            case.run()
        for compiled in seen:
            yield _report(operator, case, compiled, target)


def _report(operator: str, case: Case, compiled: Compiled, target: int) -> Report:
    registers, spilled = _usage(compiled.artifact.asm["cubin"])
    ptx, shared = compiled.artifact.asm["ptx"], compiled.artifact.metadata.shared
    used = [name for name in _TENSOR_CORES if name in ptx]
    faults = []
    if spilled:
        faults.append("registers are spilled")
    if shared > SHARED_MEMORY[target]:
        faults.append(f"more than {SHARED_MEMORY[target]} B of shared memory")
    if compiled.name in case.products and not used:
        faults.append("products without tensor cores")
    return Report(
        operator, case.name, compiled.name, compiled.parameters, target, shared, registers, spilled, " ".join(used), faults
    )


def _usage(cubin: bytes) -> tuple[int, int]:
    """Registers of a thread, and bytes of local memory that it spills to."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        command = [str(Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"), "--dump-resource-usage", file.name]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = _USAGE.search(said)
    assert found, f"cuobjdump said {said!r}"
    registers, stack, _, local = map(int, found.groups())
    return registers, stack + local


def _job(job: tuple[str, int]) -> tuple[list[Report], frozenset[tuple[str, int]]]:
    return list(compile_operator(*job)), taken()


def main() -> None:
    """Compile, print, and end with 1 if there is a fault."""
    parser = argparse.ArgumentParser(prog="python -m kernels.gpu.compiling", description=__doc__)
    parser.add_argument("--operator", action="append", choices=list(operators()), help="only this one (may be repeated)")
    parser.add_argument("--target", action="append", type=int, choices=TARGETS, help="only this one (may be repeated)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes (default: as many as cores)")
    options = parser.parse_args()
    if interpreted():
        parser.error("nothing is compiled where TRITON_INTERPRET is 1")
    jobs = [(operator, target) for operator in options.operator or operators() for target in options.target or TARGETS]
    asked: set[tuple[str, int]] = set()
    faults = 0
    with ProcessPoolExecutor(options.jobs, get_context("spawn")) as pool:
        for reports, some in pool.map(_job, jobs):
            asked |= some
            faults += sum(len(report.faults) for report in reports)
            sys.stdout.writelines(f"{report}\n" for report in reports)
    for entry in untaken(asked, TARGETS) if len(jobs) == len(operators()) * len(TARGETS) else ():
        sys.stdout.write(f"FAULT: no case takes {entry}\n")
        faults += 1
    sys.exit(int(faults > 0))


if __name__ == "__main__":
    main()
