"""``trio-mcp record``: stand between a client and a server, and record what they say to each other."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from tempfile import TemporaryDirectory
from typing import Any, BinaryIO

import trio

from trio_mcp.cli.check import shown_name
from trio_mcp.cli.exits import OK, Exit
from trio_mcp.cli.reporting import until_signalled
from trio_mcp.cli.targets import single_target
from trio_mcp.cli.text import clean
from trio_mcp.client.targets import target_name
from trio_mcp.conformance.recording.guard import RecorderGuard
from trio_mcp.conformance.recording.http import HttpRecorder
from trio_mcp.conformance.recording.lines import record_process, record_socket
from trio_mcp.conformance.recording.websocket import record_websocket
from trio_mcp.conformance.transcript.files import FileTape, TranscriptWriter
from trio_mcp.http.client.parameters import HttpServerParameters
from trio_mcp.sockets.addresses import read_address
from trio_mcp.sockets.listening import listen_tcp, listen_unix
from trio_mcp.stdio.parameters import StdioServerParameters

__all__ = ["run"]


def run(options: argparse.Namespace) -> int:
    """Record the messages until the server ends, or until Ctrl-C."""
    target = single_target(options, "a recording")
    with _opened(options.file) as file:
        name = shown_name(options) or target_name(target)
        count = trio.run(_record, target, name, file, options.port, options.path)
    print(f"trio-mcp record: {count} events in {clean(options.file)}", file=sys.stderr)
    return OK


def _opened(path: str) -> BinaryIO:
    try:
        # Only the user may read the file, because secrets in it are masked only if they can be recognised.
        return open(path, "wb", opener=lambda name, flags: os.open(name, flags, 0o600))
    except OSError as exc:
        raise Exit(f"can't write {path}: {exc.strerror}", hint=False) from None


async def _record(target: Any, name: str, file: BinaryIO, port: int | None, path: str | None) -> int:
    tape = FileTape(TranscriptWriter(file, target=name))
    # SIGTERM ends the recording, too, and the number of events is still printed: over stdio, a client that starts the
    # recorder in place of the server sends this signal (`basic/lifecycle`, Shutdown).
    await until_signalled(partial(_between, target, tape, port, path))
    return tape.count


async def _between(target: Any, tape: FileTape, port: int | None, path: str | None) -> None:
    """Pass messages between clients and the server and record them, until the server ends or the call is cancelled."""
    if isinstance(target, StdioServerParameters):
        await record_process(target, tape)
        return
    async with _listening(target, port, path) as (listeners, place):
        serve: Callable[[], Awaitable[None]]
        if not isinstance(target, HttpServerParameters):
            url = place
            serve = partial(record_socket, read_address(target), listeners, tape)
        elif target.kind == "ws":
            url = f"ws://{place}{RecorderGuard(target.url).path}"
            serve = partial(record_websocket, target, listeners, tape)
        else:
            recorder = HttpRecorder(target, tape)
            url = f"http://{place}{recorder.guard.path}"
            serve = partial(trio.serve_listeners, recorder.serve, listeners)
        # The line is flushed, because the system may have chosen the port, and a program that starts the client may
        # read it from this line.
        print(
            f"trio-mcp record: connect the client to {url}, and press Ctrl-C when the client is done",
            file=sys.stderr,
            flush=True,
        )
        await serve()


@contextlib.asynccontextmanager
async def _listening(
    target: Any, port: int | None, path: str | None
) -> AsyncIterator[tuple[list[trio.SocketListener], str]]:
    """Listen where only programs on this machine can connect; yield the listeners and their address."""
    # A client that connects reaches the server with the credentials on the command line and with this user's rights. A
    # Unix socket may admit only one user, but a port admits all users, so in front of a Unix socket the recorder
    # listens on another Unix socket.
    is_unix = not isinstance(target, HttpServerParameters) and read_address(target).scheme == "unix"
    if (port if is_unix else path) is not None:
        given, where = ("--port", "a URL with a host") if is_unix else ("--path", "a Unix socket")
        raise Exit(f"{given} is for {where}, but the target is {target_name(target)}")
    with contextlib.ExitStack() as stack:
        opening: AbstractAsyncContextManager[tuple[list[trio.SocketListener], str]]
        if is_unix:
            place = path or f"{stack.enter_context(TemporaryDirectory(prefix='trio-mcp-'))}/socket"
            opening = listen_unix(place, 0o600)
        # A port number above 65535 is refused, because the resolver would use it modulo 65536.
        elif port is not None and not 0 <= port < 65536:
            raise Exit(f"--port must be from 0 to 65535; got {port}")
        else:
            opening = listen_tcp("127.0.0.1", port or 0, tls=False, allow_remote=False)
        async with contextlib.AsyncExitStack() as listening:
            try:
                listeners, url = await listening.enter_async_context(opening)
            except (OSError, ValueError) as exc:
                raise Exit(getattr(exc, "strerror", None) or str(exc), hint=False) from None
            yield listeners, url.removeprefix("tcp://") if isinstance(target, HttpServerParameters) else url
