"""How long a change takes until `SqliteStores` have it in their file, for each of the things that it can survive."""

from __future__ import annotations

import itertools
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import trio

from benchmarks.measure.samples import Comparison, Group, interleave
from trio_mcp.stores import MemoryStores, SqliteStores, StoredTask, Stores

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from benchmarks.options import Options

IN_FLIGHT = 64
MEMORY, PROCESS, POWER = "MemoryStores", 'durable="process"', 'durable="power"'
COMPARISONS = [Comparison(POWER, PROCESS), Comparison(PROCESS, MEMORY)]


def _task(number: int) -> StoredTask:
    """Return a task that waits for an answer, with about as many bytes as in practice."""
    return StoredTask(
        key=f"{number:064}",
        owner="",
        tool="report",
        status="input_required",
        created=1.0,
        updated=1.0,
        expires=None,
        body=b"x" * 300,
        asked=b"x" * 500,
    )


async def _add(make: Callable[[str], Stores], in_flight: int, seconds: float) -> float:
    """Add tasks for some time, and return how many are added in a second."""
    with tempfile.TemporaryDirectory() as folder:
        async with make(str(Path(folder, "stores.db"))) as stores:
            numbers = itertools.count()
            begun = time.perf_counter()

            async def add() -> None:
                while time.perf_counter() < begun + seconds:
                    await stores.add_task(_task(next(numbers)), [("begun", b"x" * 100)])

            async with trio.open_nursery() as nursery:
                for _ in range(in_flight):
                    nursery.start_soon(add)
            return next(numbers) / (time.perf_counter() - begun)


def _sqlite(durable: Literal["process", "power"], path: str) -> Stores:
    return SqliteStores(path, durable=durable)


MAKERS: dict[str, Callable[[str], Stores]] = {
    MEMORY: lambda _: MemoryStores(),
    PROCESS: partial(_sqlite, "process"),
    POWER: partial(_sqlite, "power"),
}


def _rate(label: str, in_flight: int, seconds: float) -> float:
    return trio.run(_add, MAKERS[label], in_flight, seconds)


def _microseconds(label: str, seconds: float) -> float:
    return 1e6 / _rate(label, 1, seconds)


def run(options: Options) -> Iterator[Group]:
    """Yield a group for changes one after the other, and one for many in flight."""
    options.progress("commits, one after the other")
    one = {label: partial(_microseconds, label, options.seconds) for label in MAKERS}
    samples = interleave(one, options.rounds, options.progress)
    yield Group("commits", "add_task(), one after the other", "µs/commit", samples, COMPARISONS)
    options.progress(f"commits, {IN_FLIGHT} in flight")
    many = {label: partial(_rate, label, IN_FLIGHT, options.seconds) for label in MAKERS}
    samples = interleave(many, options.rounds, options.progress)
    yield Group("commits", f"add_task(), {IN_FLIGHT} in flight", "commits/s", samples, COMPARISONS)
