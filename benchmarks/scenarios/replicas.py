"""What stores in an engine cost that replicas share, and how soon one replica knows of what another one has got."""

from __future__ import annotations

import contextlib
import dataclasses
import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.load.http import of_session, post
from benchmarks.load.processes import SingleLoad
from benchmarks.load.replicas import Client, Replica
from benchmarks.load.wire import add_template
from benchmarks.measure.engine import Engine, missing
from benchmarks.measure.processes import DEADLINE, LINUX
from benchmarks.measure.samples import Comparison, Group, Target
from benchmarks.measure.throughput import groups
from benchmarks.scenarios.processes import CONNECTIONS, far_listeners

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from benchmarks.load.http import HttpLoad
    from benchmarks.options import Options

WITHOUT, STORES = "without stores", "with ValkeyStores"
MEMORY, SHARED = "MemoryEventStore, in one process", "ValkeyStores, whose sessions any process serves"
IN_SESSION = {1: "in a session, one call after the other", 32: "in a session, 32 connections"}
WINDOWS, CALLS = 50, 5  # what is counted: a replica looks once a second, so most windows are without that
TAIL = "at the 99th percentile"
LEASE = 15  # seconds; `trio_mcp.stores.contract.LEASE`
LOST = 50  # calls of a process that is killed


def run(options: Options) -> Iterator[Group]:
    """Yield the cost of calls, and how long messages, changes and the end of a replica take to reach another one."""
    if not LINUX:
        options.progress("replicas: left out, as they can be measured on Linux only")
        return
    if what := missing():
        options.progress(f"replicas: left out, as {what} is not installed")
        return
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        (folder / "engine").mkdir()
        engine = stack.enter_context(Engine(folder / "engine"))
        yield from _calls(engine, options)
        yield from _sessions(engine, options)
        yield from far_listeners("replicas", engine.url, (5, 50), options)
        yield from _messages(engine.url, folder / "moments", options)
        yield _takeover(engine.url, folder / "moments", options)
        yield _idle(engine, options)


def _calls(engine: Engine, options: Options) -> Iterator[Group]:
    options.progress("replicas, calls that use no store")
    # The difference is small, so it takes more samples than others to see it.
    more = dataclasses.replace(options, rounds=options.rounds * (1 if options.quick else 4))
    with contextlib.ExitStack() as stack:
        loads = {WITHOUT: SingleLoad(), STORES: SingleLoad(file=engine.url)}
        for load in loads.values():
            stack.callback(load.close)
        for load in loads.values():
            load.greet()
        comparison = Comparison(STORES, WITHOUT, Target(">=", 0.97))
        yield from groups("replicas", loads, {CONNECTIONS: f"modern, {CONNECTIONS} connections"}, [comparison], more)
        yield _trips(engine, loads[STORES], "modern", 0)


def _sessions(engine: Engine, options: Options) -> Iterator[Group]:
    options.progress("replicas, calls in a session")
    with contextlib.ExitStack() as stack:
        loads = {MEMORY: Replica(), SHARED: Replica(engine.url)}
        for load in loads.values():
            stack.callback(load.close)
        for load in loads.values():
            load.greet()
        comparison = Comparison(SHARED, MEMORY, Target(">=", 0.4))
        yield from groups("replicas", loads, IN_SESSION, [comparison], options)
        yield _trips(engine, loads[SHARED], "in a session", 2)


def _trips(engine: Engine, load: HttpLoad, case: str, most: float) -> Group:
    """Count the round trips of a call, one call after the other."""
    load.open(1)
    counts = []
    for _ in range(WINDOWS):
        before = engine.sent()
        load.answer(CALLS)
        counts.append((engine.sent() - before) / CALLS)
    targets = {STORES: Target("<=", most)}
    return Group("replicas", f"add(a, b), {case}: round trips to the engine", "", {STORES: counts}, [], targets)


def _messages(url: str, file: Path, options: Options) -> Iterator[Group]:
    count = 20 if options.quick else 100
    with contextlib.ExitStack() as stack:
        here, there = Replica(url), Replica(url)
        for each in (here, there):
            stack.callback(each.close)
        for each in (here, there):
            each.wait_ready()
        client = stack.enter_context(contextlib.closing(Client(here, there)))
        ways: dict[str, Callable[[], float]] = {
            "the response to a question, until the function goes on": client.answer,
            "a cancellation, until the scope is cancelled": partial(client.cancel, file),
        }
        for what, way in ways.items():
            options.progress(f"replicas, through another process: {what}")
            way()  # the process joins those that serve sessions
            samples: dict[str, list[float]] = {"at the median": [], TAIL: []}
            for turn in range(options.rounds):
                took = sorted(way() * 1000 for _ in range(count))
                samples["at the median"].append(took[count // 2])
                samples[TAIL].append(took[count * 99 // 100])
                options.progress(f"round {turn + 1}/{options.rounds}  {took[-1]:,.4g}")
            yield Group("replicas", f"through another process: {what}", "ms", samples, [], {TAIL: Target("<=", 50)})


def _takeover(url: str, file: Path, options: Options) -> Group:
    rounds = 1 if options.quick else min(3, options.rounds)
    with contextlib.closing(Replica(url)) as there:
        there.wait_ready()
        found = []
        for turn in range(rounds):
            options.progress(f"replicas, {LOST} calls of a process that is killed")
            with contextlib.closing(Replica(url)) as here:
                here.wait_ready()
                # It has just joined those that serve sessions, so its lease is a new one.
                with contextlib.closing(Client(here, there)) as client:
                    found.append(max(client.lose(LOST, file)))
            options.progress(f"round {turn + 1}/{rounds}  {found[-1]:,.4g}")
    what = "the last of them"
    case = f"{LOST} calls of a process that is killed, until their resumed streams end with errors"
    return Group("replicas", case, "s", {what: found}, [], {what: Target("<=", LEASE + 1)})


def _idle(engine: Engine, options: Options) -> Group:
    warm_up, count = (20, 50) if options.quick else (200, 800)
    options.progress(f"replicas, {count} sessions at rest")
    with contextlib.closing(Replica(engine.url)) as server:
        server.wait_ready()
        template = add_template("legacy")
        with server.process.deadline(10 * DEADLINE), contextlib.closing(server.connect()) as connection:

            def size(count: int, *, called: bool) -> float:
                """Open sessions, and return the KiB that the engine keeps of each."""
                before = engine.memory()
                for number in range(count):
                    session = server.open_session(connection)
                    if called:
                        connection.send(post(server.head(*of_session(session)), template % (number, number, 1)))
                        connection.answer()
                return (engine.memory() - before) / 1024 / count

            size(warm_up, called=True)
            samples = {
                "after its handshake": [size(count, called=False)],
                "after a call": [size(count, called=True)],
            }
    targets = dict.fromkeys(samples, Target("<=", 2))
    return Group("replicas", "a session that does nothing, in the engine", "KiB", samples, [], targets)
