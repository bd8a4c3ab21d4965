"""The full-duplex transports beside stdio and Streamable HTTP, on the server and on the client."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks._http_load import HttpLoad, HttpServer
from benchmarks._link_load import LinkLoad
from benchmarks._measure import Comparison, Group, Target, Times
from benchmarks._processes import LINUX, server_command
from benchmarks._runners import our_server
from benchmarks._throughput import Measurable, Worker, groups

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks._options import Options

STDIO, TCP, UNIX, WEBSOCKET = "stdio", "TCP", "Unix socket", "WebSocket"
HTTP = "Streamable HTTP, runner h11"
ECHO = "bare trio-websocket echo"
ALONE, LIST = "client of a WebSocket", "client of a list, WebSocket first"
CASES = {1: "one call after the other", 64: "64 in flight"}
# What is measured beside the calls per second of a case.
MEDIAN, TAIL = "time of a call at the median", "time of a call at the 99th percentile"
COST = "CPU time of the {}"

OF_STDIO, OF_ECHO, OF_ALONE = Target(">=", 0.95), Target(">=", 0.6), Target(">=", 0.95)
COMPARISONS = [
    Comparison(TCP, STDIO, OF_STDIO),
    Comparison(UNIX, STDIO, OF_STDIO),
    Comparison(WEBSOCKET, ECHO, OF_ECHO),
    Comparison(WEBSOCKET, STDIO),
    Comparison(WEBSOCKET, HTTP),
]


def run(options: Options) -> Iterator[Group]:
    """Yield four groups for calls one after the other, four for 64 in flight, and what failover costs a client."""
    with ExitStack() as stack:
        path = str(Path(stack.enter_context(tempfile.TemporaryDirectory()), "mcp.sock"))
        loads: dict[str, LinkLoad | HttpLoad] = {
            STDIO: LinkLoad(server_command("links", "stdio"), "stdio"),
            TCP: LinkLoad(server_command("links", "tcp"), "tcp"),
            UNIX: LinkLoad(server_command("links", "unix", path), "unix"),
            WEBSOCKET: LinkLoad(server_command("links", "websocket"), "websocket"),
            ECHO: LinkLoad(server_command("websocket_echo"), "websocket", echo=True),
        }
        if LINUX:
            loads[HTTP] = HttpLoad(our_server("h11"))
        for load in loads.values():
            stack.callback(load.close)
        for load in loads.values():
            load.greet()
            load.throughput(64, min(0.3, options.seconds))  # what is slow only at first is start-up
            load.measured = Times()
        measurable: dict[str, Measurable] = {**loads}
        for group in groups("transports", measurable, CASES, COMPARISONS, options):
            yield group
            yield from _times(group, loads)
    yield from _failover(options)


def _times(group: Group, loads: dict[str, LinkLoad | HttpLoad]) -> Iterator[Group]:
    """Yield the latencies and the CPU time of the same samples."""
    found = {label: load.measured for label, load in loads.items()}
    for load in loads.values():
        load.measured = Times()
    medians = {label: times.medians for label, times in found.items()}
    yield Group(group.scenario, f"{group.case}: {MEDIAN}", "µs", medians)
    yield Group(group.scenario, f"{group.case}: {TAIL}", "µs", {label: times.tails for label, times in found.items()})
    if LINUX:
        costs = {label: times.costs for label, times in found.items()}
        yield _costs(group, costs, "server")


def _costs(group: Group, samples: dict[str, list[float]], of: str) -> Group:
    """Return the CPU time per call of the same samples: how many times as much the others took."""
    turned = [Comparison(each.right, each.left, each.target) for each in group.comparisons]
    return Group(group.scenario, f"{group.case}: {COST.format(of)}", "µs/call", samples, turned)


class Caller:
    """A client in a process of its own.

    Attributes:
        costs: Microseconds of its CPU time per call, one figure for each sample; Linux only.
    """

    def __init__(self, variant: str, *urls: str) -> None:
        self.worker = Worker("our_ways", variant, *urls)
        self.costs: list[float] = []

    def throughput(self, in_flight: int, seconds: float) -> float:
        """Return the calls per second."""
        process = self.worker.process
        before = process.cpu_time() if LINUX else 0.0
        rate = self.worker.throughput(in_flight, seconds)
        if LINUX:
            self.costs.append((process.cpu_time() - before) * 1e6 / (rate * seconds))
        return rate


def _failover(options: Options) -> Iterator[Group]:
    """Yield two groups for a client of one URL, and one of a list that begins with the same URL."""
    with ExitStack() as stack:
        urls = []
        for transport in ("websocket", "tcp"):
            server = HttpServer(server_command("links", transport))
            stack.callback(server.close)
            server.wait_ready()
            urls.append(server.url)
        callers = {ALONE: Caller("alone", *urls), LIST: Caller("list", *urls)}
        for caller in callers.values():
            stack.callback(caller.worker.close)
        for caller in callers.values():
            caller.worker.wait_ready()
            caller.throughput(64, min(0.3, options.seconds))
            caller.costs.clear()
        cases = {in_flight: f"client, {case}" for in_flight, case in CASES.items()}
        for group in groups("transports", callers, cases, [Comparison(LIST, ALONE, OF_ALONE)], options):
            yield group
            if LINUX:
                yield _costs(group, {label: [*caller.costs] for label, caller in callers.items()}, "client")
            for caller in callers.values():
                caller.costs.clear()
