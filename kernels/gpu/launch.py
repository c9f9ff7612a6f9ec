"""Running a Triton kernel, or only compiling it: the one place from which kernels are launched.

Public entries are called with tensors and launch kernels by this. Within `compiling` they may be called with tensors of the
device `meta`, which have no memory: then every launch is compiled for the named GPU, exactly as it would be there, and what
came out is recorded. That needs no GPU. In the interpreter (`TRITON_INTERPRET=1`, before anything here is imported) kernels
run on the CPU, one program after the other.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import torch
from triton.backends.compiler import GPUTarget


def interpreted() -> bool:
    """Whether kernels run in the interpreter. There bfloat16 is wrong (Triton 3.8, 3.9): its products and sums are garbage."""
    return os.environ.get("TRITON_INTERPRET", "") == "1"


@dataclass(frozen=True, slots=True)
class Config:
    """How a kernel is cut and pipelined; `sizes` are compile-time parameters by name."""

    sizes: Mapping[str, int] = field(default_factory=dict)
    num_warps: int = 4
    num_stages: int = 2

    @property
    def options(self) -> dict[str, int | bool]:
        """What Triton is told. That it may fuse products and sums is its default, which is going to change."""
        return {"num_warps": self.num_warps, "num_stages": self.num_stages, "enable_fp_fusion": True}


@dataclass(frozen=True, slots=True)
class Compiled:
    """A launch that was compiled: the kernel's name, its parameters for people, and what Triton made of it."""

    name: str
    parameters: str
    artifact: Any


class _Compiler:
    """Compiles what is launched, for one target."""

    def __init__(self, capability: int, seen: Callable[[Compiled], None]) -> None:
        self.capability, self._seen = capability, seen

    def __call__(self, kernel: Any, arguments: tuple[Any, ...], config: Config, constants: dict[str, Any]) -> None:
        artifact = kernel.warmup(*arguments, grid=(1,), **config.sizes, **constants, **config.options)
        values = {**config.sizes, **constants, "num_warps": config.num_warps, "num_stages": config.num_stages}
        self._seen(Compiled(kernel.fn.__name__, " ".join(f"{name}={value}" for name, value in values.items()), artifact))


_compiler: ContextVar[_Compiler | None] = ContextVar("compiler", default=None)


def launch(kernel: Any, grid: tuple[int, ...], *arguments: Any, config: Config, **constants: Any) -> None:
    """Run a `@triton.jit` function.

    Args:
        grid: programs in up to three dimensions, none of them 0.
        arguments: in the order of the function's parameters.
        config: its sizes are passed by name.
        constants: compile-time parameters that do not come from tuning.
    """
    if compiler := _compiler.get():
        compiler(kernel, arguments, config, constants)
        return
    kernel[grid](*arguments, **config.sizes, **constants, **config.options)


def capability(device: torch.device) -> int:
    """The compute capability that kernels are chosen for, 90 for 9.0; 0 in the interpreter."""
    if compiler := _compiler.get():
        return compiler.capability
    if device.type != "cuda":
        return 0
    major, minor = torch.cuda.get_device_capability(device)
    return 10 * major + minor


class _NoDriver:
    """Stands for the GPU that is compiled for: what Triton asks of a driver before it would launch."""

    def __init__(self, capability: int) -> None:
        self._target = GPUTarget("cuda", capability, 32)

    def get_current_target(self) -> GPUTarget:
        return self._target

    def get_current_device(self) -> int:
        """A number of each target's own: what was compiled is kept by it."""
        return int(self._target.arch)

    def get_current_stream(self, device: int) -> int:
        return 0


@contextmanager
def compiling(capability: int, seen: Callable[[Compiled], None]) -> Iterator[None]:
    """Compile what is launched instead of running it.

    Args:
        capability: the target, 90 for sm_90.
        seen: told of every launch.
    """
    from triton.runtime import driver

    before = driver._active
    driver.set_active(_NoDriver(capability))
    token = _compiler.set(_Compiler(capability, seen))
    try:
        yield
    finally:
        _compiler.reset(token)
        driver._active = before
