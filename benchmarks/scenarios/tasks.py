"""What tasks cost: where they are declared and unused, where nothing is to be done, while they wait, and at rest; and
what other extensions cost that are declared and unused."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks import peers
from benchmarks.load.http import HttpServer
from benchmarks.measure.processes import LINUX, Process
from benchmarks.measure.samples import Comparison, Group, Target, interleave
from benchmarks.measure.throughput import Worker
from benchmarks.servers.commands import server_command

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from benchmarks.options import Options

WITHOUT, DECLARED, OTHERS = "without tasks", "with tasks, unused", "with apps and skills, unused"
PLAIN, MEMORY, SQLITE = "a plain call", "a task, MemoryStores", "a task, SqliteStores"
FASTMCP_PLAIN, FASTMCP_TASK = "FastMCP, a plain call", "FastMCP, a task"
UNUSED = {"memory": "in memory, encoded", "http": "over HTTP"}
CALLS = 1000  # in a sample of a second


class Pair:
    """A client, and a server unless the client's process has it, each in a process of its own.

    Args:
        command: The command of the server; None for one in the process of the client.
        module: The client's module among the contenders.
        arguments: The arguments of its `connect`; ``URL`` stands for the server's.
        interpreter: The command of another interpreter to run the client with.
    """

    def __init__(self, command: list[str] | None, module: str, *arguments: str, interpreter: str | None = None) -> None:
        self._server = None if command is None else HttpServer(command)
        self._module, self._arguments, self._interpreter = module, arguments, interpreter
        self._worker: Worker | None = None

    def connect(self) -> None:
        """Wait for the server, and start the client."""
        arguments = [*self._arguments]
        if self._server is not None:
            self._server.wait_ready()
            arguments = [self._server.url if each == "URL" else each for each in arguments]
        if self._interpreter is None:
            self._worker = Worker.of(self._module, *arguments)
        else:
            self._worker = Worker(
                [self._interpreter, "-m", "benchmarks.load.worker", "asyncio", self._module, *arguments]
            )
        self._worker.wait_ready()

    def time(self, seconds: float) -> float:
        """Return the microseconds of a call, one after the other."""
        assert self._worker is not None
        return 1e6 / self._worker.throughput(1, seconds)

    def cost(self, calls: int) -> float:
        """Return the microseconds of CPU time that the client and the server take for a call."""
        assert self._worker is not None
        processes = [self._worker.process, *([] if self._server is None else [self._server.process])]
        before = sum(process.cpu_time() for process in processes)
        self._worker.answer(1, calls)
        return (sum(process.cpu_time() for process in processes) - before) * 1e6 / calls

    def close(self) -> None:
        if self._worker is not None:
            self._worker.close()
        if self._server is not None:
            self._server.close()


def run(options: Options) -> Iterator[Group]:
    """Yield the cost of tasks that are declared and unused, of tasks of nothing, of those that wait, and at rest."""
    for way, case in UNUSED.items():
        yield from _unused(way, case, options)
    yield from _nothing(options)
    yield _waiting(options)
    yield _idle(options)


def _connected(pairs: Mapping[str, Pair], stack: ExitStack) -> None:
    for pair in pairs.values():
        stack.callback(pair.close)
    for pair in pairs.values():
        pair.connect()


def _unused(way: str, case: str, options: Options) -> Iterator[Group]:
    if not LINUX:
        options.progress("tasks: CPU time of another process can be measured on Linux only")
        return
    for variant, what in {"call": "add(a, b)", "list": "tools/list"}.items():
        if variant == "list" and options.quick:
            continue
        options.progress(f"tasks, {what} {case}")
        with ExitStack() as stack:
            pairs = {
                label: Pair(server_command("http_tasks", kind), "our_tasks", variant, "URL")
                if way == "http"
                else Pair(None, "our_tasks", variant, "memory", kind)
                for label, kind in ((WITHOUT, "none"), (DECLARED, "memory"), (OTHERS, "extensions"))
            }
            _connected(pairs, stack)
            calls = max(1, round(CALLS * options.seconds))
            # The difference is small, so it takes more samples than others to see it.
            samples = interleave(
                {label: partial(pair.cost, calls) for label, pair in pairs.items()},
                options.rounds * (1 if options.quick else 5),
                options.progress,
            )
        comparisons = [Comparison(declared, WITHOUT, Target("<=", 1.03)) for declared in (DECLARED, OTHERS)]
        yield Group("tasks", f"{what}, {case}: CPU time of client and server", "µs/call", samples, comparisons)


def _nothing(options: Options) -> Iterator[Group]:
    options.progress("tasks, a task of nothing over HTTP")
    with ExitStack() as stack:
        file = str(Path(stack.enter_context(tempfile.TemporaryDirectory()), "tasks.db"))
        pairs = {
            PLAIN: Pair(server_command("http_tasks"), "our_tasks", "call", "URL"),
            MEMORY: Pair(server_command("http_tasks", "memory"), "our_tasks", "task", "URL"),
            SQLITE: Pair(server_command("http_tasks", "sqlite", file), "our_tasks", "task", "URL"),
        }
        if command := peers.fastmcp("http", "tasks"):
            for label, tool in ((FASTMCP_PLAIN, "add"), (FASTMCP_TASK, "add_task")):
                pairs[label] = Pair(command, "fastmcp_tasks", tool, "URL", interpreter=command[0])
        _connected(pairs, stack)
        samples = interleave(
            {label: partial(pair.time, options.seconds) for label, pair in pairs.items()},
            options.rounds,
            options.progress,
        )
    comparisons = [
        Comparison(MEMORY, PLAIN, Target("<=", 3)),
        Comparison(SQLITE, PLAIN, Target("<=", 6)),
        *(Comparison(each, FASTMCP_TASK, Target("<=", 0.5)) for each in (MEMORY, SQLITE) if FASTMCP_TASK in samples),
        *(Comparison(FASTMCP_TASK, FASTMCP_PLAIN) for _ in range(FASTMCP_TASK in samples)),
    ]
    yield Group("tasks", "add(a, b) over HTTP, one call after the other", "µs", samples, comparisons)


def _figures(*arguments: str) -> list[float]:
    """Return the figures that the program of waiting tasks prints."""
    process = Process(server_command("waiting_tasks", *arguments))
    try:
        with process.deadline(1800):
            return [float(each) for each in process.read_line().split()]
    finally:
        process.close()


def _brief(options: Options) -> bool:
    """Return whether the run only sees that everything runs, or is a quick one."""
    return options.quick or options.rounds == 1


def _waiting(options: Options) -> Group:
    count = 100 if _brief(options) else 10_000
    options.progress(f"tasks, {count} of them that wait for input")
    with tempfile.TemporaryDirectory() as folder:
        process, file = _figures(str(Path(folder, "tasks.db")), str(count))
    samples = {"in the process": [process], "in the file": [file]}
    # The process may keep a constant that does not grow with the tasks: less than a word for each.
    targets = {"in the process": Target("<=", 64), "in the file": Target("<=", 4096)}
    return Group("tasks", f"a task that waits for input, SqliteStores, {count} of them", "bytes", samples, [], targets)


def _idle(options: Options) -> Group:
    options.progress("tasks, a server at rest")
    seconds = "2" if _brief(options) else "10"
    with tempfile.TemporaryDirectory() as folder:
        steps, _ = _figures("memory", "idle", seconds)
        _, looks = _figures(str(Path(folder, "tasks.db")), "idle", seconds)
    samples = {"steps of Trio, MemoryStores": [steps], "looks, SqliteStores": [looks]}
    targets = {"steps of Trio, MemoryStores": Target("<=", 0), "looks, SqliteStores": Target("<=", 1)}
    return Group("tasks", "a server at rest", "per s", samples, [], targets)
