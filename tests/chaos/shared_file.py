"""The file that the processes share, and what happens to it."""

from __future__ import annotations

import contextlib
import os
import random
import sqlite3
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar, Self

import attrs
import trio

from tests.chaos.events import Does, Event
from tests.chaos.processes import Served
from trio_mcp.stores.inspection import inspect_file

LOCKED = 5.0
"""Seconds for which the file is locked. Chosen."""

DROPPED = 10.0
"""Seconds for which all wake-ups are dropped. Chosen."""

FULL = 3.0
"""Seconds for which the disk is full. Chosen."""


@attrs.frozen
class SharedFile:
    """A file of `SqliteStores`."""

    away: ClassVar[dict[str, str]] = {"locked file": "", "full disk": ""}
    lockable: ClassVar[bool] = True
    _file: Path

    @classmethod
    @contextlib.asynccontextmanager
    async def below(cls, folder: Path) -> AsyncIterator[Self]:
        """Yield what is in a folder for the block."""
        yield cls(folder / "chaos.db")

    @property
    def settings(self) -> dict[str, Any]:
        return {"engine": None}

    def events(self, served: Served, rng: random.Random) -> dict[str, Does]:
        """Return what can happen to it."""

        async def fill(event: Event) -> None:
            with served.on_full_disk():
                await trio.sleep(FULL)

        return {"locked file": self._lock, "full disk": fill, "wake-ups dropped": self._drop}

    def left(self) -> list[str]:
        """Return the sockets of bells, and what there still is of sessions."""
        bells = _bells_of(self._file)
        found = [f"a socket of a bell: {name}" for name in (os.listdir(bells) if bells.exists() else [])]
        counts = inspect_file(str(self._file)).counts
        return found + [
            f"{counts[name]} {name}" for name in ("sessions", "streams", "members", "events") if counts[name]
        ]

    async def _lock(self, event: Event) -> None:
        connection = sqlite3.connect(self._file, isolation_level=None, timeout=0)
        try:
            for _ in range(500):
                with contextlib.suppress(sqlite3.OperationalError):
                    connection.execute("BEGIN IMMEDIATE")
                    break
                await trio.sleep(0.01)  # a transaction of another process, or one that is stopped
            event.began = time.monotonic()
            await trio.sleep(LOCKED)
        finally:
            connection.close()

    async def _drop(self, event: Event) -> None:
        with trio.move_on_after(DROPPED), dropped(_bells_of(self._file)) as drop:
            while True:
                await trio.sleep(0.02)
                drop()  # those of processes that have just started


def _bells_of(file: Path) -> Path:
    return Path(f"{file}-bells")


@contextlib.contextmanager
def dropped(bells: Path) -> Iterator[Callable[[], None]]:
    """Let no wake-up arrive: all sockets lie elsewhere meanwhile; the function that is yielded moves new ones."""
    away = bells.with_name("away")
    away.mkdir(mode=0o700, exist_ok=True)

    def move(source: Path, target: Path) -> None:
        with contextlib.suppress(FileNotFoundError):
            for name in os.listdir(source):
                with contextlib.suppress(FileNotFoundError):
                    (source / name).rename(target / name)

    move(bells, away)
    try:
        yield lambda: move(bells, away)
    finally:
        # A process that has ended meanwhile has left its socket, which the next wake-up removes.
        bells.mkdir(mode=0o700, exist_ok=True)
        move(away, bells)
        away.rmdir()
