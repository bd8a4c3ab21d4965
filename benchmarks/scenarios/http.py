"""Calls per second that an HTTP server answers, under a load generator that uses no HTTP client."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING

from benchmarks._http_load import HttpLoad
from benchmarks._measure import Comparison, Group, Target, interleave
from benchmarks._options import peer_installed
from benchmarks._processes import server_command

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks._options import Options

OURS = "ours, modern"
OFFICIAL = "official on uvicorn, modern, as it comes"
OFFICIAL_JSON = "official on uvicorn, modern, JSON"
BARE = "bare hypercorn JSON echo"

COMMANDS = {
    OURS: server_command("http_ours"),
    OFFICIAL: server_command("http_official"),
    OFFICIAL_JSON: server_command("http_official", "json"),
    BARE: server_command("http_bare"),
}

COMPARISONS = [
    Comparison(OURS, BARE, Target(">=", 0.8)),
    Comparison(OURS, OFFICIAL, Target(">=", 1.3)),
    Comparison(OURS, OFFICIAL_JSON),
]


def run(options: Options) -> Iterator[Group]:
    """One group with one connection and one with 32."""
    peers = (OFFICIAL, OFFICIAL_JSON)
    commands = {label: command for label, command in COMMANDS.items() if label not in peers or peer_installed()}
    with ExitStack() as stack:
        loads = {label: HttpLoad(command) for label, command in options.select(commands).items()}
        for load in loads.values():
            stack.callback(load.close)
        for load in loads.values():
            load.greet()
        for connections, case in ((1, "one connection"), (32, "32 connections")):
            options.progress(f"http, {case}")
            samples = interleave(
                {label: partial(load.throughput, connections, options.seconds) for label, load in loads.items()},
                options.rounds,
                options.progress,
            )
            comparisons = [c for c in COMPARISONS if c.left in samples and c.right in samples]
            yield Group("http", f"add(a, b), {case}", "calls/s", samples, comparisons)
