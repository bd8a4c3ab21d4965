"""Measure the CPU time of child processes that are servers, from ``/proc``, which only Linux has (proc(5))."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Final

import attrs

__all__ = ["children", "cpu_seconds"]

PROC: Final = Path("/proc")


@attrs.frozen
class _Process:
    """A line of ``/proc/PID/stat``: a process, its parent, its group, and its CPU time in clock ticks."""

    pid: int
    parent: int
    group: int
    ticks: int


def children() -> frozenset[int]:
    """Return the ids of this process's children; empty on a system without ``/proc``."""
    return frozenset(each.pid for each in _processes() if each.parent == os.getpid())


def cpu_seconds(leaders: Collection[int]) -> float | None:
    """Return the total CPU time of process groups in seconds, or None if they have no processes.

    Args:
        leaders: The process ids of the group leaders: each server over stdio leads a group of its own.
    """
    found = [each.ticks for each in _processes() if each.group in leaders]
    return sum(found) / os.sysconf("SC_CLK_TCK") if found else None


def _processes() -> Iterator[_Process]:
    for folder in PROC.glob("[0-9]*"):
        try:
            text = (folder / "stat").read_text(errors="replace")
        except OSError:  # the process has ended since it was listed
            continue
        # The other fields follow the process's name, which is in parentheses and may contain anything, even
        # parentheses.
        fields = text.rpartition(")")[2].split()
        # The CPU time includes that of the children for which the process has waited: utime, stime, cutime, cstime.
        yield _Process(int(folder.name), int(fields[1]), int(fields[2]), sum(map(int, fields[11:15])))
