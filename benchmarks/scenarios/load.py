"""How long a call takes, and how many there are in a second, while more and more of them are in flight."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING

from benchmarks import peers
from benchmarks.load.http import HttpLoad
from benchmarks.load.links import LinkLoad
from benchmarks.measure.processes import LINUX
from benchmarks.measure.samples import Comparison, Group, Target, Times, interleave
from benchmarks.options import peer_installed
from benchmarks.servers.commands import our_server, server_command

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.options import Options

OURS, BARE = "ours", "bare Trio loop"
LADDER = (1, 4, 16, 64, 256, 1024)
FEW = (1, 4, 16, 64, 256)  # over HTTP each has a connection
STEADY = Target(">=", 0.9)

# What is measured beside the calls per second, and the attribute of `Times` that has it.
TIMES = {
    "half of the calls take at most": "medians",
    "99 of 100 calls take at most": "tails",
    "the slowest call takes": "slowest",
}
COST = "CPU time of the server"
BUSY = "how busy the server keeps one CPU"

Load = LinkLoad | HttpLoad


def run(options: Options) -> Iterator[Group]:
    """Yield the groups of each transport: calls per second, how long they took, and what they cost the server."""
    stdio: dict[str, Load] = {OURS: LinkLoad(server_command("ours"), "stdio")}
    if peer_installed():
        stdio["official"] = LinkLoad(server_command("official"), "stdio")
    if command := peers.typescript("stdio", "v2"):
        stdio["TypeScript v2"] = LinkLoad(command, "stdio")
    stdio[BARE] = LinkLoad(server_command("bare"), "stdio")
    yield from _ladder("stdio", stdio, LADDER, options)
    yield from _ladder(
        "WebSocket", {OURS: LinkLoad(server_command("links", "websocket"), "websocket")}, LADDER, options
    )
    if LINUX:
        http: dict[str, Load] = {OURS: HttpLoad(our_server("h11"))}
        if peer_installed():
            http["official"] = HttpLoad(server_command("http_official", "json"))
        if command := peers.typescript("http", "v2"):
            http["TypeScript v2"] = HttpLoad(command)
        yield from _ladder("HTTP", http, FEW, options)


def _ladder(transport: str, loads: dict[str, Load], ladder: tuple[int, ...], options: Options) -> Iterator[Group]:
    """Climb the ladder once in each round, each time with all contenders."""
    options.progress(f"load, {transport}")
    if options.quick:
        ladder = (1, 64, ladder[-1])
    with ExitStack() as stack:
        for load in loads.values():
            stack.callback(load.close)
        for load in loads.values():
            load.greet()
            load.throughput(64, min(0.3, options.seconds))  # what is slow only at first is start-up
        times: dict[str, Times] = {}
        rungs = {}
        for in_flight in ladder:
            for name, load in loads.items():
                label = _label(name, in_flight)
                times[label] = Times()
                rungs[label] = partial(_sample, load, times[label], in_flight, options.seconds)
        samples = interleave(rungs, options.rounds, options.progress)
    # What Trio itself loses stands beside what we do.
    judged = {name: target for name, target in ((OURS, STEADY), (BARE, None)) if name in loads}
    ends = [(_label(name, ladder[-1]), _label(name, 64), target) for name, target in judged.items()]
    steady = [Comparison(most, peak, target) for most, peak, target in ends]
    yield Group("load", f"{transport}: calls per second", "calls/s", samples, steady)
    for case, attribute in TIMES.items():
        found = {label: getattr(each, attribute) for label, each in times.items()}
        yield Group("load", f"{transport}: {case}", "µs", found)
    if LINUX:
        costs = {label: each.costs for label, each in times.items()}
        steady = [Comparison(peak, most, target, about_right=True) for most, peak, target in ends]
        yield Group("load", f"{transport}: {COST}", "µs/call", costs, steady)
        # What is missing to 100 % is time in which it waited for the load: more processes gain nothing there.
        busy = {label: [c * r / 1e4 for c, r in zip(costs[label], samples[label], strict=True)] for label in costs}
        yield Group("load", f"{transport}: {BUSY}", "%", busy)


def _label(name: str, in_flight: int) -> str:
    return f"{name}, {in_flight} in flight"


def _sample(load: Load, times: Times, in_flight: int, seconds: float) -> float:
    load.measured = times
    return load.throughput(in_flight, seconds)
