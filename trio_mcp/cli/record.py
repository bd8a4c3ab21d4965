"""``trio-mcp record``: record what a client and a server say to each other, standing between them."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, BinaryIO
from urllib.parse import urlsplit

import trio

from trio_mcp._nursery import background_nursery
from trio_mcp.cli.check import shown_name
from trio_mcp.cli.exits import OK, Exit
from trio_mcp.cli.signing_in import with_stored_token
from trio_mcp.cli.targets import target_of
from trio_mcp.cli.text import clean
from trio_mcp.client.failover.parameters import FailoverParameters
from trio_mcp.client.targets import target_name
from trio_mcp.http.client.parameters import HttpServerParameters
from trio_mcp.sockets.addresses import read_address
from trio_mcp.stdio.parameters import StdioServerParameters
from trio_mcp.testing.recording.http import HttpRecorder
from trio_mcp.testing.recording.lines import record_process, record_socket
from trio_mcp.testing.recording.websocket import record_websocket
from trio_mcp.testing.transcript.files import FileTape, TranscriptWriter

__all__ = ["run"]


def run(options: argparse.Namespace) -> int:
    """Record until the server ends, or until Ctrl-C."""
    target = with_stored_token(target_of(options))
    if isinstance(target, FailoverParameters):
        raise Exit("a recording needs one way to the server, not several", hint=False)
    with _opened(options.file) as file:
        count = trio.run(_record, target, shown_name(options) or target_name(target), file, options.port)
    print(f"trio-mcp record: {count} events in {clean(options.file)}", file=sys.stderr)
    return OK


def _opened(path: str) -> BinaryIO:
    try:
        # Private: secrets are masked, but only those that can be recognised.
        return open(path, "wb", opener=lambda name, flags: os.open(name, flags, 0o600))
    except OSError as exc:
        raise Exit(f"can't write {path}: {exc.strerror}", hint=False) from None


async def _record(target: Any, name: str, file: BinaryIO, port: int) -> int:
    tape = FileTape(TranscriptWriter(file, target=name))
    # SIGTERM as well: over stdio a client that was told to start the recorder in place of the server ends it so
    # (`basic/lifecycle`, Shutdown), and the number of events is still told.
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals, trio.CancelScope() as scope:

        async def listen() -> None:
            await anext(signals)
            scope.cancel("told to end")

        async with background_nursery() as nursery:
            nursery.start_soon(listen)
            await _between(target, tape, port)
    return tape.count


async def _between(target: Any, tape: FileTape, port: int) -> None:
    """Stand between clients and the server, until it ends or this is cancelled."""
    if isinstance(target, StdioServerParameters):
        await record_process(target, tape)
        return
    # The resolver would take its remainder.
    if not 0 <= port < 65536:
        raise Exit(f"--port must be from 0 to 65535; got {port}")
    try:
        # On the loopback interface: any program that connects speaks to the server with the credentials of the command
        # line.
        listeners = await trio.open_tcp_listeners(port, host="127.0.0.1")
    except OSError as exc:
        raise Exit(f"can't listen on port {port}: {exc.strerror or exc}", hint=False) from None
    place = f"127.0.0.1:{listeners[0].socket.getsockname()[1]}"
    serve: Callable[[], Awaitable[None]]
    if not isinstance(target, HttpServerParameters):
        url = f"tcp://{place}"
        serve = partial(record_socket, read_address(target), listeners, tape)
    elif target.kind == "ws":
        url = f"ws://{place}{urlsplit(target.url).path}"
        serve = partial(record_websocket, target, listeners, tape)
    else:
        recorder = HttpRecorder(target, tape)
        url = f"http://{place}{recorder.path}"
        serve = partial(trio.serve_listeners, recorder.serve, listeners)
    # Flushed: the port may be one that the system has chosen, so the program that starts the client reads it from here.
    print(
        f"trio-mcp record: connect the client to {url}, and press Ctrl-C when it is done", file=sys.stderr, flush=True
    )
    await serve()
