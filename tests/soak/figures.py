"""The figures of a process: memory as each allocator sees it, tasks, objects by type."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import json
import os
import signal
import sys
import time
import weakref
from collections import Counter
from pathlib import Path
from typing import Any

import attrs
import trio

from trio_mcp.server.base_server import BaseServer

COUNTED = ("trio", "trio_mcp", "hypercorn", "h11", "h2", "hpack", "hyperframe", "httpx", "httpcore", "ssl", "_ssl")
COUNTED_BUILTINS = ("coroutine", "async_generator", "generator", "frame", "traceback")


class _Mallinfo2(ctypes.Structure):
    """As malloc.h has it: ten sizes in bytes, of which three have names here."""

    _fields_ = [(name, ctypes.c_size_t) for name in (*"abcd", "mapped", *"ef", "used", "free", "g")]


def malloc() -> dict[str, int]:
    """Return what glibc's malloc holds: in use, free, and mapped for big blocks; nothing where there is no glibc."""
    try:
        mallinfo2 = ctypes.CDLL(None).mallinfo2
    except AttributeError:
        return {}
    mallinfo2.restype = _Mallinfo2
    info = mallinfo2()
    return {"used": info.used, "free": info.free, "mapped": info.mapped}


def trim() -> None:
    """Have malloc return its free memory, to tell free memory from memory in use."""
    with contextlib.suppress(AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def objects() -> dict[str, int]:
    """Count what the collector knows, by type: the libraries under test, and all together."""
    gc.collect()
    found = gc.get_objects()
    kinds = Counter(type(each) for each in found)
    counted = {"all": len(found)}
    for kind, number in kinds.items():
        name = f"{kind.__module__}.{kind.__qualname__}"
        if name.partition(".")[0] in COUNTED or kind.__name__ in COUNTED_BUILTINS:
            counted[name] = counted.get(name, 0) + number
    return counted


async def pruned() -> None:
    """Make Trio prune the scopes of inactive deadlines: it keeps a little over a thousand of them."""
    with trio.move_on_after(1000) as scope:
        await trio.lowlevel.checkpoint()
    kept = weakref.ref(scope)
    del scope
    for _ in range(20_000):
        with trio.move_on_after(1000):
            await trio.lowlevel.checkpoint()
        if kept() is None:
            return


async def figures(servers: list[BaseServer]) -> dict[str, Any]:
    """Return all figures, after a garbage collection; takes about ten milliseconds."""
    await pruned()
    return {
        "time": time.time(),
        "pid": os.getpid(),
        "objects": objects(),
        "blocks": sys.getallocatedblocks(),
        "malloc": malloc(),
        "tasks": trio.lowlevel.current_statistics().tasks_living,
        "servers": [attrs.asdict(server.statistics()) for server in servers],
    }


async def on_signal(
    path: Path, servers: list[BaseServer], *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
) -> None:
    """Append the figures to a file whenever SIGUSR1 comes; after SIGUSR2 with malloc trimmed."""
    with trio.open_signal_receiver(signal.SIGUSR1, signal.SIGUSR2) as signals:
        task_status.started()
        async for number in signals:
            if number == signal.SIGUSR2:
                trim()
            line = json.dumps(await figures(servers)) + "\n"
            with path.open("a") as file:
                file.write(line)
