"""What an HTTP server costs: calls per second and CPU time per call, under a load generator without an HTTP client."""

from __future__ import annotations

import importlib.util
from contextlib import ExitStack
from typing import TYPE_CHECKING

import attrs

from benchmarks import peers
from benchmarks.load.http import HttpLoad
from benchmarks.measure.processes import ROOT
from benchmarks.measure.samples import Comparison, Group, Target
from benchmarks.measure.throughput import groups
from benchmarks.options import peer_installed
from benchmarks.servers.commands import installed_runners, our_server, server_command

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from benchmarks.load.wire import Era
    from benchmarks.options import Options

ERAS: tuple[Era, ...] = ("modern", "legacy")
OURS = "ours on {}, {}"
BEFORE = "before, {}"
OFFICIAL = "official on uvicorn, {}, as it comes"
OFFICIAL_JSON = "official on uvicorn, {}, JSON"
OFFICIAL_FAST = "official on uvicorn with httptools, {}, JSON"
NEW_HEADS = "{}, new heads"
BARE = "bare hypercorn JSON echo"

TIMES_OFFICIAL = {"hypercorn": 1.3, "h11": 1.8, "httptools": 2.5}
TIMES_BEFORE = {
    ("hypercorn", "modern"): 1.2,
    ("hypercorn", "legacy"): 1.2,
    ("h11", "modern"): 1.7,
    ("httptools", "modern"): 2.4,
    ("httptools", "legacy"): 2.4,
}


@attrs.frozen
class Contender:
    """A server, and how it is called."""

    command: list[str]
    era: Era
    root: Path = ROOT
    new_heads: bool = False


def _contenders(before: Path | None) -> dict[str, Contender]:
    found: dict[str, Contender] = {}
    for era in ERAS:
        for runner in installed_runners():
            found[OURS.format(runner, era)] = Contender(our_server(runner), era)
        if before is not None:
            found[BEFORE.format(era)] = Contender(server_command("http_ours"), era, before)
        if peer_installed():
            found[OFFICIAL.format(era)] = Contender(server_command("http_official"), era)
            found[OFFICIAL_JSON.format(era)] = Contender(server_command("http_official", "json"), era)
            if importlib.util.find_spec("httptools"):
                fast = server_command("http_official", "json", "httptools")
                found[OFFICIAL_FAST.format(era)] = Contender(fast, era)
        if command := peers.typescript("http", "v2"):
            found[f"TypeScript v2, {era}"] = Contender(command, era)
        if command := peers.fastmcp("http"):
            found[f"FastMCP on uvicorn, {era}, JSON"] = Contender(command, era)
    if command := peers.typescript("http", "v1"):
        found["TypeScript v1, legacy"] = Contender(command, "legacy")
    for label in [*(OURS.format(runner, "modern") for runner in installed_runners()), OFFICIAL_JSON.format("modern")]:
        if label in found:
            found[NEW_HEADS.format(label)] = attrs.evolve(found[label], new_heads=True)
    return {**found, BARE: Contender(server_command("http_bare"), "modern")}


def _comparisons() -> list[Comparison]:
    found = [
        Comparison(OURS.format("hypercorn", "modern"), BARE, Target(">=", 0.8)),
        Comparison(OURS.format("hypercorn", "legacy"), BARE),
        Comparison(OURS.format("hypercorn", "modern"), OFFICIAL.format("modern"), Target(">=", 1.3)),
        Comparison(OURS.format("hypercorn", "legacy"), OFFICIAL.format("legacy")),
    ]
    for runner in installed_runners():
        times = Target(">=", TIMES_OFFICIAL[runner])
        for era in ERAS:
            label = OURS.format(runner, era)
            bound = TIMES_BEFORE.get((runner, era))
            found.append(Comparison(label, OFFICIAL_JSON.format(era), times))
            found.append(Comparison(label, BEFORE.format(era), None if bound is None else Target(">=", bound)))
        ours, official = OURS.format(runner, "modern"), OFFICIAL_JSON.format("modern")
        found.append(Comparison(NEW_HEADS.format(ours), NEW_HEADS.format(official), times))
        found.append(Comparison(NEW_HEADS.format(ours), ours))
    for era in ERAS:
        found.append(Comparison(OURS.format("httptools", era), OFFICIAL_FAST.format(era)))
        others = ("TypeScript v2, {}", "TypeScript v1, {}", "FastMCP on uvicorn, {}, JSON")
        found += [Comparison(OURS.format("h11", era), other.format(era)) for other in others]
    return found


def run(options: Options) -> Iterator[Group]:
    """Yield two groups for one connection and two for 32: calls per second, and CPU time per call."""
    chosen = options.select(_contenders(options.before))
    with ExitStack() as stack:
        loads: dict[str, HttpLoad] = {}
        for label, each in chosen.items():
            loads[label] = HttpLoad(each.command, each.era, each.root, new_heads=each.new_heads)
            stack.callback(loads[label].close)
        for load in loads.values():
            load.greet()
        yield from groups("http", loads, {1: "one connection", 32: "32 connections"}, _comparisons(), options)
