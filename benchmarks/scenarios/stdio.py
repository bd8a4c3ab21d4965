"""Calls per second that a stdio server answers, under a load generator that uses no SDK."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

from benchmarks._load import Ceiling, Load
from benchmarks._measure import Comparison, Target
from benchmarks._options import peer_installed
from benchmarks._processes import server_command
from benchmarks._throughput import Measurable, groups

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks._measure import Group
    from benchmarks._options import Options
    from benchmarks._wire import Era

# label -> (command, era)
OURS: dict[str, tuple[list[str], Era]] = {
    "ours, modern": (server_command("ours"), "modern"),
    "ours, legacy": (server_command("ours"), "legacy"),
}
PEER: dict[str, tuple[list[str], Era]] = {
    "official, modern": (server_command("official"), "modern"),
    "official, legacy": (server_command("official"), "legacy"),
    "official on Trio, modern": (server_command("official", "trio"), "modern"),
    "official on Trio, legacy": (server_command("official", "trio"), "legacy"),
}
BARE: dict[str, tuple[list[str], Era]] = {"bare Trio loop": (server_command("bare"), "modern")}
CEILING = "load generator against cat"

COMPARISONS = [
    Comparison("ours, modern", "official, modern", Target(">=", 4)),
    Comparison("ours, legacy", "official, legacy", Target(">=", 4)),
    Comparison("ours, modern", "official on Trio, modern", Target(">=", 4)),
    Comparison("ours, legacy", "official on Trio, legacy", Target(">=", 4)),
    Comparison("ours, modern", "bare Trio loop"),
    Comparison("bare Trio loop", CEILING),
]


def run(options: Options) -> Iterator[Group]:
    """Yield a group for sequential calls and one for 64 in flight."""
    chosen = options.select({**OURS, **(PEER if peer_installed() else {}), **BARE})
    with ExitStack() as stack:
        servers: dict[str, Load] = {}
        for label, (command, era) in chosen.items():
            servers[label] = Load(command, era)
            stack.callback(servers[label].close)
        for server in servers.values():
            server.greet()
        ceiling = Ceiling()
        stack.callback(ceiling.close)
        loads: dict[str, Measurable] = {**servers, CEILING: ceiling}
        yield from groups("stdio", loads, {1: "sequential", 64: "64 in flight"}, COMPARISONS, options)
