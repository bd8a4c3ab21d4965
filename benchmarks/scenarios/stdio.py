"""Calls per second that a stdio server answers, under a load generator that uses no SDK."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

from benchmarks.load.pipes import Ceiling, Load
from benchmarks.measure.samples import Comparison
from benchmarks.measure.throughput import Measurable, groups
from benchmarks.servers.commands import stdio_servers

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.measure.samples import Group
    from benchmarks.options import Options

CEILING = "load generator against cat"

COMPARISONS = [
    Comparison("ours, modern", "official, modern", calls={1: 4, 64: 20}),
    Comparison("ours, legacy", "official, legacy", calls={1: 4, 64: 20}),
    Comparison("ours, modern", "official on Trio, modern"),
    Comparison("ours, legacy", "official on Trio, legacy"),
    Comparison("ours, modern", "TypeScript v2, modern", calls={1: 0.8, 64: 0.85}),
    Comparison("ours, legacy", "TypeScript v2, legacy"),
    Comparison("ours, legacy", "TypeScript v1, legacy"),
    Comparison("ours, modern", "FastMCP, modern"),
    Comparison("ours, legacy", "FastMCP, legacy"),
    Comparison("ours, modern", "before, modern", calls={1: 1.35}),
    Comparison("ours, legacy", "before, legacy", calls={1: 1.35}),
    Comparison("ours, modern", "bare Trio loop", calls={1: 0.85, 64: 0.34}),
    Comparison("bare Trio loop", CEILING),
]


def run(options: Options) -> Iterator[Group]:
    """Yield two groups for sequential calls and two for 64 in flight: calls per second, and CPU time per call."""
    with ExitStack() as stack:
        servers: dict[str, Load] = {}
        for label, each in stdio_servers(options).items():
            servers[label] = Load(each.command, each.era, each.root)
            stack.callback(servers[label].close)
        for server in servers.values():
            server.greet()
        ceiling = Ceiling()
        stack.callback(ceiling.close)
        loads: dict[str, Measurable] = {**servers, CEILING: ceiling}
        yield from groups("stdio", loads, {1: "sequential", 64: "64 in flight"}, COMPARISONS, options)
