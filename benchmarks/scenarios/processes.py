"""What several processes cost: with stores, at equal load, with listeners elsewhere, and while nothing happens."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.load.processes import CHANGES, TOPICS, FarListeners, ProcessesLoad, SingleLoad, waits_of
from benchmarks.measure.processes import LINUX, Process, allow_files
from benchmarks.measure.samples import Comparison, Group, Target, Times, interleave
from benchmarks.measure.throughput import groups
from benchmarks.servers.commands import server_command

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.options import Options

WITHOUT, STORES = "without stores", "with stores"
ONE, FOUR, SPREAD = "one process", "four processes, each with as many", "four processes, the same clients"
CONNECTIONS = 8  # for each process
LEAST_CPUS = 4  # for four processes to be faster than one
AT_ONCE = 64
CASES = {1: f"each change of interest to 1 of {TOPICS}", TOPICS: "each change of interest to all"}
SETTLED = 5.0  # seconds until a server that has done something is at rest, its threads included


def run(options: Options) -> Iterator[Group]:
    """Yield the cost of stores, of several processes and of their transactions, and what they do for listeners."""
    if not LINUX:
        options.progress("processes: they can be measured on Linux only")
        return
    with tempfile.TemporaryDirectory() as folder:
        yield from _stores(str(Path(folder, "stores.db")), options)
        yield from _processes(options)
        yield from _transactions(folder, options)
        yield from far_listeners("processes", str(Path(folder, "listeners.db")), (25, 100), options)
        yield _idle(folder, options)


def _brief(options: Options) -> bool:
    """Return whether the run only sees that everything runs, or is a quick one."""
    return options.quick or options.rounds == 1


def _stores(file: str, options: Options) -> Iterator[Group]:
    options.progress("processes, stores that are not used")
    # The difference is small, so it takes more samples than others to see it.
    more = dataclasses.replace(options, rounds=options.rounds * (1 if _brief(options) else 4))
    with contextlib.ExitStack() as stack:
        loads = {WITHOUT: SingleLoad(), STORES: SingleLoad(file=file)}
        for load in loads.values():
            stack.callback(load.close)
        for load in loads.values():
            load.greet()
        comparison = Comparison(STORES, WITHOUT, Target(">=", 0.97))
        yield from groups("processes", loads, {CONNECTIONS: f"{CONNECTIONS} connections"}, [comparison], more)


def _processes(options: Options) -> Iterator[Group]:
    options.progress("processes, one and four")
    with contextlib.ExitStack() as stack:
        loads = {ONE: ProcessesLoad(1), FOUR: ProcessesLoad(4), SPREAD: ProcessesLoad(4, 1 / 4)}
        for load in loads.values():
            stack.callback(load.close)
        for load in loads.values():
            load.greet()
            load.throughput(CONNECTIONS, min(0.3, options.seconds))  # what is slow only at first is start-up
            load.measured = Times()
        contenders = {label: partial(load.throughput, CONNECTIONS, options.seconds) for label, load in loads.items()}
        rates = interleave(contenders, options.rounds, options.progress)
        costs = {label: load.measured.costs for label, load in loads.items()}
        title = f"add(a, b), {CONNECTIONS} kept connections for each process"
        comparisons = [Comparison(FOUR, ONE, Target("<=", 1.05)), Comparison(SPREAD, ONE)]
        yield Group("processes", f"{title}: CPU time of the server", "µs/call", costs, comparisons)
        answered = Group("processes", title, "calls/s", rates)
        if (cpus := os.cpu_count() or 1) >= LEAST_CPUS:
            answered.comparisons.append(Comparison(FOUR, ONE, Target(">=", 1.7)))
        else:
            answered.notes.append(f"{FOUR} / {ONE}: not measured, with {cpus} processors of {LEAST_CPUS}")
        yield answered
        yield _at_once(loads[FOUR], options)


def _at_once(load: ProcessesLoad, options: Options) -> Group:
    options.progress(f"processes, {AT_ONCE} connections at once")
    runs = 3 if _brief(options) else 20
    shares = [float(max(load.shares(AT_ONCE).values())) for _ in range(runs)]
    # Below twice the mean, which is 32: the median of whole numbers has no fraction but a half.
    targets = {"the largest share": Target("<=", 2 * AT_ONCE / 4 - 0.5)}
    case = f"{AT_ONCE} connections opened at once over four processes, {runs} times"
    return Group("processes", case, "connections", {"the largest share": shares}, [], targets)


def _transactions(folder: str, options: Options) -> Iterator[Group]:
    options.progress("processes, transactions")
    found: dict[str, list[list[float]]] = {}
    for turn in range(options.rounds):
        process = Process(server_command("transactions", str(Path(folder, f"{turn}.db")), str(options.seconds)))
        with process, process.deadline():
            for label, each in json.loads(process.read_line()).items():
                found.setdefault(label, []).append(each)
    for place, (what, unit, most) in enumerate((("transactions", "", 1), ("time at the 99th percentile", "ms", 5))):
        samples = {label: [each[place] for each in figures] for label, figures in found.items()}
        yield Group("processes", f"SqliteStores: {what}", unit, samples, [], dict.fromkeys(found, Target("<=", most)))


def far_listeners(scenario: str, file: str, most: tuple[float, float], options: Options) -> Iterator[Group]:
    """Yield how long changes in one process take to reach the listeners of another.

    Args:
        scenario: The name of the scenario.
        file: The file that both share, or the URL of an engine.
        most: The goals, in milliseconds: at the median, and at the 99th percentile.
        options: The options of the run.
    """
    count, seconds = (100, 1) if _brief(options) else (1000, 8)
    allow_files(count + 200)
    with contextlib.closing(FarListeners(file)) as load:
        load.wait_ready()
        for topics, case in CASES.items():
            options.progress(f"{scenario}, {count} listeners in one and changes in another, {case}")
            delays = sorted(load.delays(count, topics, CHANGES * seconds))
            samples = {
                label: [delays[len(delays) * percent // 100] * 1000]
                for label, percent in (("at the median", 50), ("at the 99th percentile", 99))
            }
            targets = {label: Target("<=", bound) for label, bound in zip(samples, most, strict=True)}
            what = f"{CHANGES} changes a second to listeners in another process, {count} of them, {case}"
            yield Group(scenario, what, "ms", samples, [], targets)


def _idle(folder: str, options: Options) -> Group:
    options.progress("processes, servers at rest")
    seconds = 2.0 if _brief(options) else 20.0
    with contextlib.ExitStack() as stack:
        files = {"with stores": "idle.db", "with stores and tasks": "tasks.db"}
        loads = {
            label: ProcessesLoad(2, file=str(Path(folder, file)), tasks="tasks" in label, count=True)
            for label, file in files.items()
        }
        for load in loads.values():
            stack.callback(load.close)
        for load in loads.values():
            load.greet()
        time.sleep(1 if _brief(options) else SETTLED)
        supervisor = loads["with stores"].process.pid
        before = {label: load.waits() for label, load in loads.items()}
        supervisor_before = waits_of(supervisor)
        time.sleep(seconds)
        samples = {
            # The second of the calls that ask is among those that it counts.
            label: [(now - earlier - 1) / seconds for now, earlier in zip(load.waits(), before[label], strict=True)]
            for label, load in loads.items()
        }
        samples["the supervisor of two"] = [(waits_of(supervisor) - supervisor_before) / seconds]
    targets = dict.fromkeys(files, Target("<=", 2))
    return Group("processes", "wake-ups of each process of a server at rest", "per s", samples, [], targets)
