"""A program: its children save a login, and are killed at each call of the system in turn; others share a lock.

A process of its own, outside any run of Trio, so that it can fork.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import trio

from trio_mcp import _platform
from trio_mcp.auth.client.stores import files
from trio_mcp.auth.client.stores.files import FileTokens

KEY = "https://mcp.example.com/mcp"
CODE = {files.__file__, _platform.__file__}


def child(run: Callable[[], object]) -> int:
    """Run a function in a child, and return how it ended."""
    process = os.fork()
    if not process:
        try:
            run()
        finally:
            os._exit(0 if sys.exc_info()[0] is None else 1)
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


def save(folder: str, kill_at: int) -> None:
    """Save, and be killed right before or right after the call with this number of a function in C."""
    left = kill_at

    def count(frame: Any, event: str, _: object) -> None:
        nonlocal left
        if event in ("c_call", "c_return") and frame.f_code.co_filename in CODE:
            left -= 1
            if left < 0:
                os.kill(os.getpid(), signal.SIGKILL)

    threading.setprofile(count)  # for the thread that writes
    trio.run(FileTokens(folder).save, KEY, "new")


def killed(folder: str) -> list[bytes]:
    """Return what the file holds after each end, from the first call to beyond the last one."""
    found = []
    (path,) = Path(folder).glob("*.json")
    before = path.read_bytes()
    for number in range(1000):
        for left in Path(folder).glob(".*"):  # each would be another call
            left.unlink()
        path.write_bytes(before)
        code = child(lambda number=number: save(folder, number))
        found.append(path.read_bytes())
        if code != -signal.SIGKILL:
            assert code == 0
            return found
    raise AssertionError


async def count(folder: str) -> None:
    store = FileTokens(folder)
    for _ in range(3):
        async with store.lock(KEY):
            await store.save(KEY, str(int(await store.load(KEY) or 0) + 1))


async def die(folder: str) -> None:
    async with FileTokens(folder).lock(KEY):
        os.kill(os.getpid(), signal.SIGKILL)


def shared(folder: str) -> str:
    """Count in eight processes at a time, after one that died while it held the lock; return how far they came."""
    assert child(lambda: trio.run(die, folder)) == -signal.SIGKILL
    assert child(lambda: trio.run(FileTokens(folder).save, KEY, "0")) == 0
    processes = []
    for _ in range(8):
        process = os.fork()
        if not process:
            trio.run(count, folder)
            os._exit(0)
        processes.append(process)
    assert [os.waitpid(process, 0)[1] for process in processes] == [0] * 8
    (path,) = Path(folder).glob("*.json")
    return str(json.loads(path.read_text())["text"])


if __name__ == "__main__":
    print(json.dumps([[each.decode() for each in killed(sys.argv[1])], shared(sys.argv[2])]))
