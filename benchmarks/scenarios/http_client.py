"""Calls per second of an HTTP client: against the same fast server for all, and against the server of its own SDK."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

import attrs

from benchmarks._http_load import HttpLoad, HttpServer
from benchmarks._measure import Comparison
from benchmarks._options import peer_installed
from benchmarks._processes import server_command
from benchmarks._throughput import Worker, groups

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from benchmarks._measure import Group
    from benchmarks._options import Options

CASES = {1: "sequential", 32: "32 in flight"}
CEILING = "load generator against the same server"


@attrs.frozen
class Contender:
    """A client, and the program in servers/ that it calls."""

    module: str
    era: str
    server: tuple[str, ...]
    loop: str = "trio"
    more: tuple[str, ...] = ()


FAST, EVENTS = ("http_fast",), ("http_fast", "sse")
CLIENTS = {
    "ours, modern": Contender("our_http", "modern", FAST),
    "ours, legacy": Contender("our_http", "legacy", FAST),
    "ours, modern, events": Contender("our_http", "modern", EVENTS),
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
CLIENT_COMPARISONS = [
    Comparison("ours, modern", "official, modern"),
    Comparison("ours, legacy", "official, legacy"),
    Comparison("ours, modern, events", "official, modern, events"),
    Comparison("ours, modern", "official on Trio, modern"),
    Comparison("ours, legacy", "official on Trio, legacy"),
    Comparison("ours, modern", "bare httpx"),
    Comparison("ours, modern", "bare h11"),
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


def run_client(options: Options) -> Iterator[Group]:
    """Measure clients against a server that is much faster: a group for sequential calls, one for 32 in flight."""
    chosen = options.select({**CLIENTS, **(PEER_CLIENTS if peer_installed() else {})})
    with ExitStack() as stack:
        ceiling = HttpLoad(server_command("http_fast"))
        stack.callback(ceiling.close)
        ceiling.greet()
        workers = _connected(chosen, stack)
        yield from groups("http-client", {**workers, CEILING: ceiling}, CASES, CLIENT_COMPARISONS, options)


def run_both(options: Options) -> Iterator[Group]:
    """Measure each client against the server of its own SDK, likewise."""
    chosen = options.select({**BOTH, **(PEER_BOTH if peer_installed() else {})})
    with ExitStack() as stack:
        yield from groups("http-both", _connected(chosen, stack), CASES, BOTH_COMPARISONS, options)


def _connected(chosen: Mapping[str, Contender], stack: ExitStack) -> dict[str, Worker]:
    """Start each server once, and then the clients."""
    servers: dict[tuple[str, ...], HttpServer] = {}
    for name in {contender.server: None for contender in chosen.values()}:
        servers[name] = HttpServer(server_command(*name))
        stack.callback(servers[name].close)
    for server in servers.values():
        server.wait_ready()
    workers: dict[str, Worker] = {}
    for label, contender in chosen.items():
        url = servers[contender.server].url
        workers[label] = Worker(contender.module, contender.era, url, *contender.more, loop=contender.loop)
        stack.callback(workers[label].close)
    for worker in workers.values():
        worker.wait_ready()
    return workers
