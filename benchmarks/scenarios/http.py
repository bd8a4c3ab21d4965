"""Calls per second that an HTTP server answers, under a load generator that uses no HTTP client."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

from benchmarks._http_load import HttpLoad
from benchmarks._measure import Comparison, Target
from benchmarks._options import peer_installed
from benchmarks._processes import server_command
from benchmarks._throughput import groups

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks._measure import Group
    from benchmarks._options import Options
    from benchmarks._wire import Era

OFFICIAL = "official on uvicorn, {}, as it comes"
OFFICIAL_JSON = "official on uvicorn, {}, JSON"
BARE = "bare hypercorn JSON echo"

# label -> (command, era)
OURS: dict[str, tuple[list[str], Era]] = {
    "ours, modern": (server_command("http_ours"), "modern"),
    "ours, legacy": (server_command("http_ours"), "legacy"),
}
PEER: dict[str, tuple[list[str], Era]] = {
    OFFICIAL.format("modern"): (server_command("http_official"), "modern"),
    OFFICIAL.format("legacy"): (server_command("http_official"), "legacy"),
    OFFICIAL_JSON.format("modern"): (server_command("http_official", "json"), "modern"),
    OFFICIAL_JSON.format("legacy"): (server_command("http_official", "json"), "legacy"),
}
BARE_SERVER: dict[str, tuple[list[str], Era]] = {BARE: (server_command("http_bare"), "modern")}

COMPARISONS = [
    Comparison("ours, modern", BARE, Target(">=", 0.8)),
    Comparison("ours, modern", OFFICIAL.format("modern"), Target(">=", 1.3)),
    Comparison("ours, modern", OFFICIAL_JSON.format("modern")),
    Comparison("ours, legacy", BARE),
    Comparison("ours, legacy", OFFICIAL.format("legacy")),
    Comparison("ours, legacy", OFFICIAL_JSON.format("legacy")),
]


def run(options: Options) -> Iterator[Group]:
    """Yield a group for one connection and one for 32."""
    chosen = options.select({**OURS, **(PEER if peer_installed() else {}), **BARE_SERVER})
    with ExitStack() as stack:
        loads: dict[str, HttpLoad] = {}
        for label, (command, era) in chosen.items():
            loads[label] = HttpLoad(command, era)
            stack.callback(loads[label].close)
        for load in loads.values():
            load.greet()
        yield from groups("http", loads, {1: "one connection", 32: "32 connections"}, COMPARISONS, options)
