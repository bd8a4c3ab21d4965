"""What a call costs without async: by the blocking client, and by `trio.from_thread.run` around the async one."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING

from benchmarks.load.http import HttpServer
from benchmarks.measure.processes import Process, python
from benchmarks.measure.samples import Comparison, Group, Target, interleave
from benchmarks.servers.commands import server_command

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.options import Options

KINDS = {"blocking.Client": "blocking", "trio.from_thread.run": "from_thread"}
CALLS = 2000  # in a sample of a second


def _cost(process: Process, calls: int) -> float:
    with process.deadline():
        process.write(b"%d\n" % calls)
        return float(process.read_line())


def run(options: Options) -> Iterator[Group]:
    """Yield the CPU time of a call in memory and over HTTP."""
    for case in ("in memory", "over HTTP"):
        options.progress(f"blocking, {case}")
        with ExitStack() as stack:
            urls = []
            if case == "over HTTP":
                server = HttpServer(server_command("http_tasks", "none"))
                stack.callback(server.close)
                server.wait_ready()
                urls.append(server.url)
            processes = {
                label: Process(python("-m", "benchmarks.load.blocking", kind, *urls)) for label, kind in KINDS.items()
            }
            for process in processes.values():
                stack.callback(process.close)
            for process in processes.values():
                with process.deadline():
                    process.read_line()
            calls = max(1, round(CALLS * options.seconds))
            samples = interleave(
                {label: partial(_cost, process, calls) for label, process in processes.items()},
                options.rounds,
                options.progress,
            )
        comparisons = [Comparison("blocking.Client", "trio.from_thread.run", Target("<=", 1.3))]
        yield Group("blocking", f"add(a, b) {case}: CPU time of the client's process", "µs/call", samples, comparisons)
