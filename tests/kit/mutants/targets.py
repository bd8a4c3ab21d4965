"""Where mutants are met: in memory, and over real transports."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import trio
import trio.testing
import trio_websocket

from tests import forks
from tests.kit.mutants.server import Twin, serve_lines
from tests.kit.mutants.web import Web
from trio_mcp import HttpServerParameters, StdioServerParameters
from trio_mcp._nursery import background_nursery
from trio_mcp.conformance.transcript.tape import Tape
from trio_mcp.conformance.wires.http import http_wire
from trio_mcp.conformance.wires.lines import LinesWire, stream_wire
from trio_mcp.conformance.wires.targets import WireTarget

ROOT = Path(__file__).resolve().parents[3]


@contextlib.asynccontextmanager
async def in_memory(twin: Twin, over: str, name: str = "twin") -> AsyncIterator[WireTarget]:
    """Serve a twin for as long as the block runs, over ``lines`` or ``http``. On a virtual clock time costs nothing."""
    twin.pause = 0.4
    async with background_nursery() as nursery:
        web = (twin.web or Web)(twin, nursery)

        async def connect() -> trio.abc.Stream:
            await trio.lowlevel.checkpoint()
            ours, theirs = trio.testing.memory_stream_pair()
            if over == "http":
                nursery.start_soon(web.serve, theirs)
            else:
                nursery.start_soon(serve_lines, twin, theirs)
            return ours

        @contextlib.asynccontextmanager
        async def lines(tape: Tape, number: int, revision: str) -> AsyncIterator[LinesWire]:
            async with stream_wire(tape, number, "memory", await connect()) as wire:
                yield wire

        credentials = getattr(web, "credentials", None)
        http = http_wire(
            HttpServerParameters(getattr(web, "url", "http://127.0.0.1/mcp")),
            connect=connect,
            credentials=credentials,
        )
        yield WireTarget(name, http if over == "http" else lines)


@contextlib.asynccontextmanager
async def over_sockets(twin: Twin, over: str) -> AsyncIterator[str]:
    """Serve a twin over ``tcp``, ``http`` or ``ws`` for as long as the block runs, and yield its URL."""
    async with background_nursery() as nursery:
        if over == "ws":
            serve = partial(trio_websocket.serve_websocket, partial(_greet, twin), "127.0.0.1", 0, ssl_context=None)
            server: Any = await nursery.start(serve)
            yield f"ws://127.0.0.1:{server.port}/mcp"
            return
        web = (twin.web or Web)(twin, nursery)
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        handler = web.serve if over == "http" else partial(serve_lines, twin)
        nursery.start_soon(trio.serve_listeners, handler, listeners)
        port = listeners[0].socket.getsockname()[1]
        yield f"http://127.0.0.1:{port}/mcp" if over == "http" else f"tcp://127.0.0.1:{port}"


def process(name: str = "", *, forked: bool = True) -> StdioServerParameters:
    """Return the process that serves a mutant, or the twin, over standard input and output.

    Only one that is not forked can be measured: the fork is not its child.
    """
    command, *arguments = (
        forks.command("tests.kit.mutants", "tests.kit.mutants.table")
        if forked
        else (sys.executable, "-m", "tests.kit.mutants")
    )
    return StdioServerParameters(command, [*arguments, *name.split()], env={**os.environ}, cwd=ROOT)


async def _greet(twin: Twin, request: trio_websocket.WebSocketRequest) -> None:
    socket = await request.accept(subprotocol="mcp")
    outbox, outgoing = trio.open_memory_channel[str](100_000)

    async def write() -> None:
        async for text in outgoing:
            await socket.send_message(text)

    try:
        async with socket, trio.open_nursery() as nursery:
            nursery.start_soon(write)
            session = twin.session(
                twin, nursery, lambda message, about: outbox.send_nowait(session.frame(message).decode().strip())
            )
            try:
                while True:
                    text = await socket.get_message()
                    session.receive(text if isinstance(text, bytes) else text.encode())
            finally:
                session.close()
                nursery.cancel_scope.cancel()
    except* trio_websocket.ConnectionClosed:
        pass
