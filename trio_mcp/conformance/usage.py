"""Measures the memory, descriptors and threads that a process group uses on Linux, to find leaks."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path

import attrs

__all__ = ["Usage", "grown", "usage_of"]

PROC = Path("/proc")

# Less growth than these limits is not reported. They are an arbitrary choice: an interpreter that is still warming up
# stays below them.
FACTOR = 2.0
AT_LEAST = {"memory": 64 * 1024 * 1024, "descriptors": 50, "threads": 50}


@attrs.frozen
class Usage:
    """The resources that a process group uses.

    Attributes:
        memory: The bytes of resident memory.
        descriptors: The number of open files, sockets and pipes.
        threads: The number of threads.
    """

    memory: int
    descriptors: int
    threads: int


def usage_of(group: int) -> Usage | None:
    """Return the resources that a process group uses; None if the system is not Linux, or the group has ended."""
    if not sys.platform.startswith("linux"):
        return None
    memory = descriptors = threads = 0
    # The whole process group counts, because many servers are started by a launcher, whose own process then only waits.
    for each in PROC.iterdir():
        with contextlib.suppress(OSError):  # a process may have just ended, or belong to another user
            if each.name.isdecimal() and os.getpgid(int(each.name)) == group:
                # The fields follow the name in parentheses, which may contain spaces. proc(5) counts from 1, and
                # `num_threads` is field 20.
                threads += int((each / "stat").read_text().rpartition(")")[2].split()[17])
                # The numbers in `statm` count pages, and the second number is that of the resident pages (proc(5)).
                # Reserved memory says little: some runtimes reserve gigabytes at once.
                memory += int((each / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
                descriptors += sum(1 for _ in (each / "fd").iterdir())
    return Usage(memory, descriptors, threads) if threads else None


def grown(first: Usage, last: Usage) -> list[str]:
    """Return a sentence about each resource of which a process uses far more than before."""
    found = []
    for name, least in AT_LEAST.items():
        before, after = getattr(first, name), getattr(last, name)
        # Both conditions are needed: one more module may double a small process, and a large process may vary by more
        # than the absolute limit from one garbage collection to the next.
        if after - before > least and after > FACTOR * before:
            shown = f"{before >> 20} to {after >> 20} MiB" if name == "memory" else f"{before} to {after}"
            found.append(f"the target seems to leak {name}: usage grew from {shown}")
    return found
