"""The full-duplex transports beside stdio and Streamable HTTP, on the server and on the client."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.load.http import HttpLoad, HttpServer
from benchmarks.load.links import LinkLoad
from benchmarks.measure.processes import LINUX
from benchmarks.measure.samples import Comparison, Target
from benchmarks.measure.throughput import Measurable, Worker, groups
from benchmarks.servers.commands import our_server, server_command

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.measure.samples import Group
    from benchmarks.options import Options

STDIO, TCP, UNIX, WEBSOCKET = "stdio", "TCP", "Unix socket", "WebSocket"
HTTP = "Streamable HTTP, runner h11"
ECHO = "bare trio-websocket echo"
ALONE, LIST = "client of a WebSocket", "client of a list, WebSocket first"
CASES = {1: "one call after the other", 64: "64 in flight"}
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
        measurable: dict[str, Measurable] = {**loads}
        yield from groups("transports", measurable, CASES, COMPARISONS, options, times=True)
    yield from _failover(options)


def _failover(options: Options) -> Iterator[Group]:
    """Yield two groups for a client of one URL, and one of a list that begins with the same URL."""
    with ExitStack() as stack:
        urls = []
        for transport in ("websocket", "tcp"):
            server = HttpServer(server_command("links", transport))
            stack.callback(server.close)
            server.wait_ready()
            urls.append(server.url)
        callers = {ALONE: Worker.of("our_ways", "alone", *urls), LIST: Worker.of("our_ways", "list", *urls)}
        for caller in callers.values():
            stack.callback(caller.close)
        for caller in callers.values():
            caller.wait_ready()
        cases = {in_flight: f"client, {case}" for in_flight, case in CASES.items()}
        yield from groups("transports", callers, cases, [Comparison(LIST, ALONE, OF_ALONE)], options, of="client")
