"""What a call through a proxy, and through a mounted server, costs beside the call itself."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import attrs

from benchmarks import peers
from benchmarks.load.http import HttpServer
from benchmarks.measure.processes import python
from benchmarks.measure.samples import Comparison, Group, Target, interleave
from benchmarks.measure.throughput import COST, Worker, warm_up
from benchmarks.options import peer_installed
from benchmarks.servers.commands import server_command

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from benchmarks.options import Options

CASES = {1: "sequential", 64: "64 in flight"}

FASTMCP = "fastmcp"
"""Stands for the interpreter that has FastMCP, and its server."""


@attrs.frozen
class Way:
    """A way to a tool: a client, the server that it calls, and the server behind that.

    Attributes:
        client: The client's module among the contenders, and the arguments of its `connect` before the URL.
        server: The program, and its arguments before the URL of what is behind it; None in memory.
        behind: The same for the server behind a proxy.
        loop: The event loop of the client.
    """

    client: tuple[str, ...]
    server: tuple[str, ...] | None = None
    behind: tuple[str, ...] | None = None
    loop: str = "trio"


OUR_CLIENT, OFFICIAL_CLIENT = ("our_http", "modern"), ("official_http", "modern")
FASTMCP_CLIENT = ("fastmcp_composed", "plain")
OURS, OFFICIAL = ("http_composed", "plain"), ("http_official", "json")
FASTMCPS = (FASTMCP, "http")

HTTP = {
    "ours, the call itself": Way(OUR_CLIENT, OURS),
    "ours, a mount": Way(OUR_CLIENT, ("http_composed", "mount")),
    "ours, ProxyServer": Way(OUR_CLIENT, ("http_composed", "proxy"), OURS),
    "FastMCP, the call itself": Way(FASTMCP_CLIENT, FASTMCPS, loop="asyncio"),
    "FastMCP, a mount": Way(FASTMCP_CLIENT, (*FASTMCPS, "mount"), loop="asyncio"),
    "FastMCP, create_proxy": Way(FASTMCP_CLIENT, (*FASTMCPS, "proxy"), FASTMCPS, loop="asyncio"),
    "official, the call itself": Way(OFFICIAL_CLIENT, OFFICIAL, loop="asyncio"),
    "official, a forwarding server": Way(OFFICIAL_CLIENT, ("http_forwarding",), OFFICIAL, loop="asyncio"),
}
MEMORY = {
    "ours, the call itself": Way(("our_composed", "plain")),
    "ours, a mount": Way(("our_composed", "mount")),
    "ours, ProxyServer": Way(("our_composed", "proxy")),
    "FastMCP, the call itself": Way(("fastmcp_composed", "plain"), loop="asyncio"),
    "FastMCP, a mount": Way(("fastmcp_composed", "mount"), loop="asyncio"),
    "FastMCP, create_proxy": Way(("fastmcp_composed", "proxy"), loop="asyncio"),
}
# A proxy makes a call of its own for each one that it gets, so twice the cost of a call is the least.
GOAL = Target("<=", 2.5)
RATIOS = [
    Comparison("ours, a mount", "ours, the call itself", GOAL),
    Comparison("ours, ProxyServer", "ours, the call itself", GOAL),
    Comparison("FastMCP, a mount", "FastMCP, the call itself"),
    Comparison("FastMCP, create_proxy", "FastMCP, the call itself"),
    Comparison("official, a forwarding server", "official, the call itself"),
    Comparison("ours, a mount", "FastMCP, a mount"),
    Comparison("ours, ProxyServer", "FastMCP, create_proxy"),
    Comparison("ours, ProxyServer", "official, a forwarding server"),
]


def run(options: Options) -> Iterator[Group]:
    """Yield calls per second, and the CPU time of all processes per call, over HTTP and in memory."""
    for where, ways in {"over HTTP": HTTP, "in memory": MEMORY}.items():
        with ExitStack() as stack:
            workers = {label: _opened(way, stack) for label, way in options.select(_runnable(ways)).items()}
            if workers:
                yield from _groups(where, workers, options)


def _runnable(ways: Mapping[str, Way]) -> dict[str, Way]:
    """Return the ways whose libraries are installed."""
    have = {"FastMCP": peers.fastmcp() is not None, "official": peer_installed(), "ours": True}
    return {label: way for label, way in ways.items() if have[label.partition(",")[0]]}


def _opened(way: Way, stack: ExitStack) -> Worker:
    """Start the servers of a way, the last one first, and then the client."""
    urls: list[str] = []
    servers = []
    for program in (way.behind, way.server):
        if program is not None:
            server = HttpServer(_command(*program, *urls))
            stack.callback(server.close)
            server.wait_ready()
            urls = [server.url]
            servers.append(server.process)
    command = ["-m", "benchmarks.load.worker", way.loop, *way.client, *urls]
    fastmcp = peers.fastmcp()
    interpreter = fastmcp[:1] if fastmcp is not None and way.client[0].startswith(FASTMCP) else python()
    worker = Worker([*interpreter, *command], beside=servers)
    stack.callback(worker.close)
    worker.wait_ready()
    return worker


def _command(program: str, *arguments: str) -> list[str]:
    if program != FASTMCP:
        return server_command(program, *arguments)
    command = peers.fastmcp(*arguments)
    assert command is not None
    return command


def _groups(where: str, workers: Mapping[str, Worker], options: Options) -> Iterator[Group]:
    ratios = [each for each in RATIOS if each.left in workers and each.right in workers]
    for in_flight, case in CASES.items():
        title = f"add(a, b) {where}, {case}"
        options.progress(f"proxies, {title}")
        warm_up(workers, in_flight, options.seconds)
        rates = interleave(
            {label: partial(worker.throughput, in_flight, options.seconds) for label, worker in workers.items()},
            options.rounds,
            options.progress,
        )
        yield Group("proxies", title, "calls/s", rates, [replace(each, target=None) for each in ratios])
        costs = {label: worker.measured.costs for label, worker in workers.items()}
        if all(costs.values()):
            yield Group("proxies", f"{title}: {COST.format('processes')}", "µs/call", costs, ratios)
