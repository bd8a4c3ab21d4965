"""Measures the memory, descriptors and threads that a process group uses on Linux, to find leaks."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final

import attrs

__all__ = ["A_ROUND", "MOST_ROUNDS", "Usage", "grown", "grows", "is_decided", "usage_of"]

A_ROUND: Final = 5
"""How often a request is repeated between two measurements (arbitrary)."""

FEWEST_ROUNDS, MOST_ROUNDS = 4, 60
"""The numbers of rounds from which on figures are judged, and after which a request is not repeated any more
(arbitrary)."""


@attrs.frozen
class Limit:
    """How far a figure must grow to count as growing with each call.

    All values are arbitrary: an interpreter that warms up, or whose garbage is still to be collected, has a round in
    which it grows by less.

    Attributes:
        step: By how much it must grow in every round.
        rounds: In how many rounds.
        total: By how much in all of them together.
        factor: By which factor.
    """

    step: float
    rounds: int
    total: float
    factor: float = 1.0


LIMITS: Final = {
    "memory": Limit(512 * 1024, 6, 64 * 1024 * 1024, 1.5),
    "descriptors": Limit(A_ROUND - 1, 6, 0),
    "threads": Limit(A_ROUND - 1, 6, 0),
    "seconds": Limit(0.002, 4, 0.03, 3.0),
}
"""The limits, by the name of the figure."""


def grows(values: Sequence[float], name: str) -> bool | None:
    """Return whether a figure grows with each call, given its values after each round; None if that is open."""
    limit, growth = LIMITS[name], values[-1] - values[0]
    if len(values) < FEWEST_ROUNDS:
        return None
    if any(after - before < limit.step for before, after in pairwise(values)):
        return False
    far = growth >= limit.total and values[-1] >= limit.factor * values[0]
    return True if far and len(values) > limit.rounds else None


def is_decided(rounds: Sequence[Mapping[str, float]]) -> bool:
    """Return whether it is known of each figure whether it grows, or of one that it does."""
    found = [grows([each[name] for each in rounds], name) for name in LIMITS]
    return True in found or None not in found


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
