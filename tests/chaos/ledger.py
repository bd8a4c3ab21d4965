"""The ledger of the processes, which a process of the driver keeps: what each call's handler did, where and when."""

from __future__ import annotations

import contextlib
import os
from collections import defaultdict
from collections.abc import AsyncIterator
from pathlib import Path

import attrs
import trio


@attrs.frozen
class Entry:
    """What a process wrote.

    Attributes:
        what: ``began``, ``ended``, ``failed``, ``cancelled``, ``touched``, ``held``; of a step of a task ``ran``,
            and ``kept`` when its result is; of a question, ``asked`` and ``answered``.
        pid: The process.
        at: When, on the monotonic clock.
    """

    what: str
    pid: int
    at: float


@contextlib.asynccontextmanager
async def kept(folder: Path) -> AsyncIterator[None]:
    """Keep a ledger for the block: what is written to ``ledger`` lies in ``ledger.txt``, whichever process is killed.

    A pipe and not the file itself: the limit that stands for a full disk would be one of the ledger, too.
    """
    os.mkfifo(folder / "ledger", 0o600)
    # Open for writing all the time, so that the pipe does not end when there is no server.
    descriptor = os.open(folder / "ledger", os.O_RDWR)
    try:
        with (folder / "ledger.txt").open("wb") as file:
            cat = await trio.lowlevel.open_process(["cat", str(folder / "ledger")], stdout=file)
        yield
    finally:
        os.close(descriptor)
        with trio.CancelScope(shield=True):
            with trio.move_on_after(10):
                await cat.wait()
            cat.kill()
            await cat.wait()


def entries(folder: Path) -> dict[str, list[Entry]]:
    """Return what was written, by the name of what it is about."""
    found: dict[str, list[Entry]] = defaultdict(list)
    for line in (folder / "ledger.txt").read_text().splitlines():
        name, what, pid, at = line.split()
        found[name].append(Entry(what, int(pid), float(at)))
    return found
