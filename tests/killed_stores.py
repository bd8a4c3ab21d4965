"""Processes that share the file of a `SqliteEventStore` and are killed: no event whose `append` returned may be lost.

``python -m tests.killed_stores --seconds 60 --seed 1`` runs rounds, each with a new file. In a round four processes at
a time open one or two stores on the file, append events, close a store and open it again. Each is killed after a random
number of events, and another takes its place. Then every event that was stored is looked for. The exit status is 1 if
one is missing, or the file is damaged or can be read by others.
"""

from __future__ import annotations

import argparse
import itertools
import os
import random
import signal
import sqlite3
import sys
import tempfile
from collections.abc import Iterator
from contextlib import AsyncExitStack, suppress
from functools import partial
from pathlib import Path

import attrs
import trio

from tests import forks
from trio_mcp import EventsLost, SqliteEventStore, StoredEvent

__all__ = ["Round"]

PROCESSES = 4
LIVES = 10
"""How many processes take each place in a round."""

LONGEST = 60
"""How many events a process may store before it is killed."""

NET = 300
"""Seconds. Against a hang only."""


# --- a process --------------------------------------------------------------------------------------------------------


async def _live(path: str, seed: str) -> None:
    """Store events until killed; print each event once it is stored."""
    rng = random.Random(seed)
    numbers = [itertools.count(1), itertools.count(1)]
    while True:
        async with AsyncExitStack() as stack:
            stores: list[SqliteEventStore] = []
            for stream in range(rng.randint(1, 2)):
                # The second name leads to the same file.
                store = SqliteEventStore(rng.choice([path, f"{path}-link"]), max_events=10**9)
                stores.append(await stack.enter_async_context(store))
                await _append(rng.randint(0, 5), store, seed, stream, numbers[stream])
            async with trio.open_nursery() as nursery:
                for stream, store in enumerate(stores):
                    nursery.start_soon(_append, rng.randint(0, 20), store, seed, stream, numbers[stream])
                if rng.random() < 0.5:
                    await stores[0].aclose()  # while it is used: its task opens it again


async def _append(count: int, store: SqliteEventStore, session: str, stream: int, numbers: Iterator[int]) -> None:
    for number in itertools.islice(numbers, count):
        await store.append(session, [StoredEvent(stream, number, b"{}")])
        os.write(1, f"{session} {stream} {number}\n".encode())


# --- what looks after them --------------------------------------------------------------------------------------------


@attrs.define
class Round:
    """One file, and those that use it.

    Attributes:
        folder: Where the file is; empty.
        seed: What the processes do, and when they are killed.
        lives: How many processes take each place.
        stored: The last event of each stream that is known to be stored: how many there are.
        faults: What went wrong.
    """

    folder: Path
    seed: int
    lives: int = LIVES
    stored: dict[tuple[str, int], int] = attrs.Factory(dict)
    faults: list[str] = attrs.Factory(list)

    @property
    def path(self) -> Path:
        return self.folder / "events.db"

    async def run(self) -> None:
        """Let the processes live and die, then look for what they have stored."""
        os.symlink(self.path, f"{self.path}-link")
        async with trio.open_nursery() as nursery:
            for place in range(PROCESSES):
                nursery.start_soon(self._place, place)
        await self._look()

    async def _place(self, place: int) -> None:
        rng = random.Random(f"{self.seed} {place}")
        for life in range(self.lives):
            await self._life(f"{self.seed}-{place}-{life}", rng.randint(1, LONGEST))

    async def _life(self, name: str, events: int) -> None:
        """Have a process store events, and kill it when it has stored as many."""
        command = [*forks.command("tests.killed_stores", *forks.LOADED), "live", str(self.path), name]
        errors = self.folder / f"{name}.txt"
        with errors.open("wb") as file:
            process = await trio.lowlevel.open_process(command, stdout=-1, stderr=file)
        assert process.stdout is not None
        text = b""
        try:
            async with process.stdout:
                # The pipe ends when the process has ended, and not before all that it had printed was read.
                async for chunk in process.stdout:
                    text += chunk
                    if text.count(b"\n") >= events:
                        process.kill()
            await process.wait()
        finally:
            process.kill()  # if it hangs, and this was cancelled
        for line in text.decode().split("\n")[:-1]:
            session, stream, number = line.split()
            self.stored[session, int(stream)] = int(number)
        if process.returncode != -signal.SIGKILL:
            self.faults.append(f"{name} ended by itself: {errors.read_text()}")

    async def _look(self) -> None:
        for each in self.folder.glob("events.db*"):
            if each.stat().st_mode & 0o077:
                self.faults.append(f"{each.name} can be read by others")
        try:
            async with SqliteEventStore(self.path) as store:
                for (session, stream), count in self.stored.items():
                    await self._look_for(store, session, stream, count)
        except sqlite3.Error as exc:
            self.faults.append(f"the file can't be read: {exc}")

    async def _look_for(self, store: SqliteEventStore, session: str, stream: int, count: int) -> None:
        found = 0
        with suppress(EventsLost):
            while more := await store.after(session, stream, found):
                found = more[-1].number
        if found < count:
            self.faults.append(f"{session}: {count} events of stream {stream} were stored, {found} are there")


async def _rounds(seconds: float, seed: int) -> int:
    """Run rounds for a time, and return how many had faults."""
    rounds = events = failed = 0
    end = trio.current_time() + seconds
    while trio.current_time() < end:
        with tempfile.TemporaryDirectory() as folder:
            each = Round(Path(folder), seed + rounds)
            with trio.fail_after(NET):
                await each.run()
        rounds += 1
        events += sum(each.stored.values())
        failed += bool(each.faults)
        for fault in each.faults:
            print(f"seed {each.seed}: {fault}", file=sys.stderr)
    killed = rounds * PROCESSES * LIVES
    print(f"seed {seed}: {rounds} rounds, {killed} processes killed, {events} events; {failed} rounds failed")
    return failed


def main() -> int:
    """Run the command."""
    if sys.argv[1:2] == ["live"]:
        trio.run(_live, *sys.argv[2:])
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    return int(trio.run(partial(_rounds, options.seconds, options.seed)) > 0)


if __name__ == "__main__":
    sys.exit(main())
