"""Threads follow the CPU quota of the cgroup: more would spin against the kernel."""

from pathlib import Path

import pytest

from backends.child.cpu import usable_threads


@pytest.mark.parametrize(
    ("text", "at_most"), [("100000 100000", 1), ("150000 100000", 2), ("50000 100000", 1), ("max 100000", 999)]
)
def test_a_quota_of_cgroup_v2_bounds_the_threads(tmp_path: Path, text: str, at_most: int) -> None:
    (tmp_path / "sys/fs/cgroup").mkdir(parents=True)
    (tmp_path / "sys/fs/cgroup/cpu.max").write_text(text)
    assert 1 <= usable_threads(tmp_path) <= at_most


def test_a_quota_of_cgroup_v1_bounds_the_threads(tmp_path: Path) -> None:
    folder = tmp_path / "sys/fs/cgroup/cpu"
    folder.mkdir(parents=True)
    (folder / "cpu.cfs_quota_us").write_text("100000\n")
    (folder / "cpu.cfs_period_us").write_text("100000\n")
    assert usable_threads(tmp_path) == 1


def test_without_a_quota_there_is_at_least_one_thread(tmp_path: Path) -> None:
    assert usable_threads(tmp_path) >= 1
