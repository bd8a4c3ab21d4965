"""The probes of a comparison of two checkouts: the CPU time, or the memory, of one process for a fixed amount of work.

A probe starts the processes that it needs and returns the values of its rows. On both sides these processes differ only
in the directory from which they import ``trio_mcp``. So their programs use the public API only, which any version has.
"""

from __future__ import annotations

from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING

from benchmarks.load.http import HttpLoad, HttpServer
from benchmarks.load.pipes import Load
from benchmarks.measure.processes import Process, ProcessFailed, python
from benchmarks.measure.throughput import Worker
from benchmarks.scenarios.idle_sessions import per_session
from benchmarks.scenarios.startup import list_tools
from benchmarks.servers.commands import server_command

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from benchmarks.load.wire import Era

    Values = dict[str, float]
    Probe = Callable[[Path, int], Values]  # where trio_mcp is, and how many calls there are to make

WARM_UP = 200  # calls before the clock runs: imports, caches, and the interpreter's specialisation of hot code
STARTS = 5  # processes per sample of start-up; the lowest figure counts, since disturbances only add
SESSIONS = 800

MICROSECONDS, MILLISECONDS, MEBIBYTES, KIBIBYTES = "µs/call", "ms", "MiB", "KiB"


def _cost(process: Process, answer: Callable[[int], None], calls: int) -> float:
    """Return the microseconds of CPU time that the process takes for one call."""
    answer(WARM_UP)
    before = process.cpu_time()
    answer(calls)
    return (process.cpu_time() - before) * 1e6 / calls


def _peak(process: Process) -> float:
    peak = process.peak_rss()
    if peak is None:
        raise ProcessFailed("a server ended before its memory could be read")
    return peak


def stdio(era: Era, root: Path, calls: int) -> Values:
    """Measure a stdio server with one call and with many in flight, and then its memory."""
    with closing(Load(server_command("ours"), era, root)) as load:
        load.greet()
        return {
            "sequential": _cost(load.process, partial(load.answer, 1), calls),
            "64 in flight": _cost(load.process, partial(load.answer, 64), calls),
            "peak memory": _peak(load.process),
        }


def http(era: Era, root: Path, calls: int) -> Values:
    """Measure an HTTP server on hypercorn likewise; in the legacy era all calls belong to one session."""
    with closing(HttpLoad(server_command("http_ours"), era, root)) as load:
        load.greet()
        values = {}
        for connections, row in ((1, "1 connection"), (32, "32 connections")):
            load.open(connections)
            values[row] = _cost(load.process, load.answer, calls)
        return {**values, "peak memory": _peak(load.process)}


def _caller(worker: Worker, in_flight: int, calls: int) -> Values:
    worker.wait_ready()
    return {
        "sequential": _cost(worker.process, partial(worker.answer, 1), calls),
        f"{in_flight} in flight": _cost(worker.process, partial(worker.answer, in_flight), calls),
    }


def client(era: Era, root: Path, calls: int) -> Values:
    """Measure a client over HTTP, against a server that is the same for both sides."""
    with closing(HttpServer(server_command("http_fast"))) as server:
        server.wait_ready()
        with closing(Worker.of("our_http", era, server.url, root=root)) as worker:
            return _caller(worker, 32, calls)


def in_memory(era: Era, root: Path, calls: int) -> Values:
    """Measure a client and a server that exchange bytes in one process."""
    with closing(Worker.of("our_memory", f"{era}-encoded", root=root)) as worker:
        return _caller(worker, 64, calls)


def _least(used: Callable[[], float]) -> float:
    return min(used() for _ in range(STARTS)) * 1000


def _start(era: Era, root: Path) -> float:
    with Process(server_command("ours"), root) as process, process.deadline():
        list_tools(process, era)
        return process.finish()


def start_up(era: Era, root: Path, calls: int) -> Values:
    """Measure a whole run of a stdio server that lists its tools once and exits at the end of its stdin."""
    del calls
    return {"to tools/list and exit": _least(partial(_start, era, root))}


def _import(name: str, root: Path) -> float:
    with Process(python("-c", f"from trio_mcp import {name}"), root) as process, process.deadline():
        return process.finish()


def imports(root: Path, calls: int) -> Values:
    """Measure an interpreter that imports one name and exits."""
    del calls
    return {f"of {name}": _least(partial(_import, name, root)) for name in ("Client", "Server")}


def idle(root: Path, calls: int) -> Values:
    """Measure the memory of a legacy session over HTTP whose client does nothing."""
    del calls
    return {"a session": per_session("http_ours", SESSIONS, root)}


PROBES: Mapping[str, Probe] = {
    "start-up-modern": partial(start_up, "modern"),
    "start-up-legacy": partial(start_up, "legacy"),
    "import": imports,
    "stdio-modern": partial(stdio, "modern"),
    "stdio-legacy": partial(stdio, "legacy"),
    "http-modern": partial(http, "modern"),
    "http-legacy": partial(http, "legacy"),
    "idle": idle,
    "client-modern": partial(client, "modern"),
    "client-legacy": partial(client, "legacy"),
    "in-memory-modern": partial(in_memory, "modern"),
    "in-memory-legacy": partial(in_memory, "legacy"),
}


def unit_of(probe: str, row: str) -> str:
    """Return the unit of a row's values."""
    if row == "peak memory":
        return MEBIBYTES
    if probe == "idle":
        return KIBIBYTES
    return MILLISECONDS if probe.startswith(("start-up", "import")) else MICROSECONDS


def must_fall(probe: str, row: str) -> bool:
    """Return whether a row must have decreased, not only not increased: a modern POST, start-up, and memory."""
    return unit_of(probe, row) != MICROSECONDS or probe == "http-modern"
