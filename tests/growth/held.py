"""What a process holds: tasks, timers, threads, descriptors, memory, objects."""

from __future__ import annotations

import gc
import math
import os
import threading
from pathlib import Path
from typing import TypeAlias

import trio

from tests.soak.figures import trim

LEEWAY = 1.0
"""MiB by which resident memory may grow."""


Held: TypeAlias = dict[str, float]
"""What a process holds, by name; resident memory in MiB."""


def held() -> Held:
    """Take a snapshot of this process, without garbage and free memory."""
    gc.collect()
    trim()
    statistics = trio.lowlevel.current_statistics()
    status = Path("/proc/self/status").read_text()
    resident = next(line for line in status.splitlines() if line.startswith("VmRSS:"))
    return {
        "tasks": statistics.tasks_living,
        "timers": math.isfinite(statistics.seconds_to_next_deadline),
        "threads": threading.active_count(),
        "descriptors": len(os.listdir("/proc/self/fd")),
        "objects": len(gc.get_objects()),
        "resident": int(resident.split()[1]) / 1024,
    }


def left(before: Held, after: Held, whose: str) -> list[str]:
    """Return what was not there before, in words."""
    found = [
        f"{whose}: {name} was {before[name]} and is {after[name]}"
        for name in ("tasks", "timers", "threads", "descriptors")
        if after[name] > before[name]
    ]
    # Settled calls may stay in the heap of deadlines for a while, with their objects; one for each call would be more.
    if after["objects"] > before["objects"] + 2000:
        found.append(f"{whose}: {after['objects'] - before['objects']} objects more")
    if after["resident"] > before["resident"] + LEEWAY:
        found.append(f"{whose}: resident memory grew by {after['resident'] - before['resident']:.2f} MiB")
    return found
