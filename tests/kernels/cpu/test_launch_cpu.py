"""Launching kernels: teams, arguments, and machines without libgomp."""

import os
import subprocess
import sys
from typing import Any

import pytest
import torch

from kernels.cpu.launch import Launch, barrier, kernel, thread
from kernels.cpu.numbers import double_of_bits, longs_at


@kernel
def signed_list(a: Any) -> None:
    """Arguments: threads, list, sum. Every thread signs; after the barrier the first adds up."""
    names = longs_at(a[1])
    names[thread()] = 1 + thread()
    barrier()
    if thread() == 0:
        for member in range(a[0]):
            longs_at(a[2])[0] += names[member]


@kernel
def copied_arguments(a: Any) -> None:
    """Arguments: threads, out, anything, a float."""
    out = longs_at(a[1])
    out[0], out[1] = a[2], 1000 * double_of_bits(a[3])


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_every_thread_of_a_team_takes_part_and_waits_for_the_others(threads: int) -> None:
    names, total = torch.zeros(8, dtype=torch.int64), torch.zeros(1, dtype=torch.int64)
    launch = Launch(signed_list, names, total, threads=threads)
    for count in range(1, 50):
        names.zero_()
        launch()
        assert names.tolist() == [*range(1, threads + 1), *[0] * (8 - threads)]
        assert total.item() == count * sum(range(1, threads + 1))


def test_arguments_arrive_as_they_are_and_can_be_replaced() -> None:
    out = torch.zeros(2, dtype=torch.int64)
    launch = Launch(copied_arguments, out, -(1 << 62), -0.25, threads=1)
    launch()
    assert out.tolist() == [-(1 << 62), -250]
    launch.set(2, None)
    launch.set(3, 3.0)
    launch()
    assert out.tolist() == [0, 3000]
    launch.arguments[1:3] = out.data_ptr(), 7
    launch()
    assert out.tolist() == [7, 3000]


def test_tensors_live_as_long_as_their_launch() -> None:
    launch = Launch(copied_arguments, torch.zeros(1 << 20, dtype=torch.int64), 5, 1.0, threads=1)
    for _ in range(10):
        launch()  # writes into memory that nobody else holds
        assert torch.zeros(1 << 20, dtype=torch.int64).sum() == 0


def test_without_libgomp_kernels_run_on_the_calling_thread() -> None:
    script = """
import ctypes
import llvmlite.binding
import torch
torch.__file__ = "/nowhere/torch/__init__.py"
import test_launch_cpu as tests
from kernels.cpu.launch import _NO_BARRIER
assert llvmlite.binding.address_of_symbol("GOMP_barrier") == ctypes.cast(_NO_BARRIER, ctypes.c_void_p).value
names, total = torch.zeros(8, dtype=torch.int64), torch.zeros(1, dtype=torch.int64)
tests.Launch(tests.signed_list, names, total, threads=4)()
assert (names.tolist(), total.item()) == ([1, *[0] * 7], 1), names
"""
    path = os.pathsep.join([os.path.dirname(__file__), *sys.path])
    subprocess.run([sys.executable, "-c", script], check=True, env={**os.environ, "PYTHONPATH": path}, timeout=60)
