"""Calls per second of an HTTP client: against the same fast server for all, and against the server of its own SDK."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

import attrs

from benchmarks import peers
from benchmarks.load.http import HttpLoad, HttpServer
from benchmarks.measure.processes import ROOT
from benchmarks.measure.samples import Comparison
from benchmarks.measure.throughput import Measurable, Worker, groups
from benchmarks.options import peer_installed
from benchmarks.servers.commands import server_command

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from benchmarks.measure.samples import Group
    from benchmarks.options import Options

CASES = {1: "sequential", 32: "32 in flight"}
CEILING = "load generator against the same server"


@attrs.frozen
class Contender:
    """A client, and the program in servers/ that it calls.

    Attributes:
        module: Its module in contenders/, or `TYPESCRIPT`.
        era: The era that it is to speak.
        server: The program and its arguments.
        loop: The event loop on which it runs.
        more: Further arguments of its module; for `TYPESCRIPT`, its version.
        before: Whether it is that of the other checkout.
    """

    module: str
    era: str
    server: tuple[str, ...]
    loop: str = "trio"
    more: tuple[str, ...] = ()
    before: bool = False


TYPESCRIPT = "typescript"
FAST, EVENTS, NEW_HEADS = ("http_fast",), ("http_fast", "sse"), ("http_fast", "heads")
CLIENTS = {
    "ours, modern": Contender("our_http", "modern", FAST),
    "ours, legacy": Contender("our_http", "legacy", FAST),
    "ours, modern, events": Contender("our_http", "modern", EVENTS),
    "ours, modern, new heads": Contender("our_http", "modern", NEW_HEADS),
    "ours, modern, signed in": Contender("our_http", "modern", FAST, more=("bearer",)),
    "ours, modern, signed in with DPoP": Contender("our_http", "modern", FAST, more=("dpop",)),
    "bare httpx": Contender("bare_http", "modern", FAST),
    "bare h11": Contender("bare_h11", "modern", FAST),
}
PEER_CLIENTS = {
    "official, modern": Contender("official_http", "modern", FAST, "asyncio"),
    "official, legacy": Contender("official_http", "legacy", FAST, "asyncio"),
    "official, modern, events": Contender("official_http", "modern", EVENTS, "asyncio"),
    "official on Trio, modern": Contender("official_http", "modern", FAST),
    "official on Trio, legacy": Contender("official_http", "legacy", FAST),
}
BEFORE_CLIENTS = {
    "before, modern": Contender("our_http", "modern", FAST, before=True),
    "before, legacy": Contender("our_http", "legacy", FAST, before=True),
}
TYPESCRIPT_CLIENTS = {
    "TypeScript v2, modern": Contender(TYPESCRIPT, "modern", FAST, more=("v2",)),
    "TypeScript v2, legacy": Contender(TYPESCRIPT, "legacy", FAST, more=("v2",)),
    "TypeScript v2, modern, events": Contender(TYPESCRIPT, "modern", EVENTS, more=("v2",)),
    "TypeScript v1, legacy": Contender(TYPESCRIPT, "legacy", FAST, more=("v1",)),
}
OF_OFFICIAL, OF_TYPESCRIPT, OF_H11 = dict.fromkeys(CASES, 2.2), {32: 0.6}, dict.fromkeys(CASES, 0.35)
CLIENT_COMPARISONS = [
    Comparison("ours, modern", "official, modern", calls=OF_OFFICIAL),
    Comparison("ours, legacy", "official, legacy", calls=OF_OFFICIAL),
    Comparison("ours, modern, events", "official, modern, events"),
    Comparison("ours, modern", "official on Trio, modern"),
    Comparison("ours, legacy", "official on Trio, legacy"),
    Comparison("ours, modern", "TypeScript v2, modern", calls=OF_TYPESCRIPT, cpu={32: 1.3}),
    Comparison("ours, legacy", "TypeScript v2, legacy"),
    Comparison("ours, modern, events", "TypeScript v2, modern, events"),
    Comparison("ours, legacy", "TypeScript v1, legacy"),
    Comparison("ours, modern", "before, modern"),
    Comparison("ours, legacy", "before, legacy"),
    Comparison("ours, modern", "bare httpx"),
    Comparison("ours, modern", "bare h11", calls=OF_H11),
    Comparison("ours, modern, new heads", "ours, modern"),
    Comparison("ours, modern, signed in", "ours, modern"),
    Comparison("ours, modern, signed in with DPoP", "ours, modern"),
    Comparison("bare h11", CEILING),
]

OUR_SERVER, OFFICIAL_SERVER = ("http_ours",), ("http_official",)
BOTH = {
    "ours to ours, modern": Contender("our_http", "modern", OUR_SERVER),
    "ours to ours, legacy": Contender("our_http", "legacy", OUR_SERVER),
}
PEER_BOTH = {
    "official to official, modern": Contender("official_http", "modern", OFFICIAL_SERVER, "asyncio"),
    "official to official, legacy": Contender("official_http", "legacy", OFFICIAL_SERVER, "asyncio"),
}
BOTH_COMPARISONS = [
    Comparison("ours to ours, modern", "official to official, modern"),
    Comparison("ours to ours, legacy", "official to official, legacy"),
]


class _Ceiling(HttpLoad):
    """The load generator, without a cost: what this process measures is that of the server, not of a client."""

    def throughput(self, connections: int, seconds: float) -> float:
        rate = super().throughput(connections, seconds)
        self.measured.costs.clear()
        return rate


def run_client(options: Options) -> Iterator[Group]:
    """Measure clients against a server that is much faster: two groups for sequential calls, two for 32 in flight."""
    chosen = {
        **CLIENTS,
        **(PEER_CLIENTS if peer_installed() else {}),
        **(BEFORE_CLIENTS if options.before else {}),
        **({} if peers.TYPESCRIPT in peers.missing() else TYPESCRIPT_CLIENTS),
    }
    with ExitStack() as stack:
        ceiling = _Ceiling(server_command("http_fast"))
        stack.callback(ceiling.close)
        ceiling.greet()
        workers = _connected(options.select(chosen), stack, options.before)
        contenders: dict[str, Measurable] = {**workers, CEILING: ceiling}
        yield from groups("http-client", contenders, CASES, CLIENT_COMPARISONS, options, of="client")


def run_both(options: Options) -> Iterator[Group]:
    """Measure each client against the server of its own SDK, likewise."""
    chosen = options.select({**BOTH, **(PEER_BOTH if peer_installed() else {})})
    with ExitStack() as stack:
        workers = _connected(chosen, stack, None)
        yield from groups("http-both", workers, CASES, BOTH_COMPARISONS, options, of="client")


def _worker(contender: Contender, url: str, before: Path | None) -> Worker:
    if contender.module == TYPESCRIPT:
        command = peers.typescript("client", *contender.more, contender.era, url)
        assert command is not None
        return Worker(command)
    root = before if contender.before and before else ROOT
    return Worker.of(contender.module, contender.era, url, *contender.more, loop=contender.loop, root=root)


def _connected(chosen: Mapping[str, Contender], stack: ExitStack, before: Path | None) -> dict[str, Worker]:
    """Start each server once, and then the clients."""
    servers: dict[tuple[str, ...], HttpServer] = {}
    for name in {contender.server: None for contender in chosen.values()}:
        servers[name] = HttpServer(server_command(*name))
        stack.callback(servers[name].close)
    for server in servers.values():
        server.wait_ready()
    workers: dict[str, Worker] = {}
    for label, contender in chosen.items():
        workers[label] = _worker(contender, servers[contender.server].url, before)
        stack.callback(workers[label].close)
    for worker in workers.values():
        worker.wait_ready()
    return workers
