"""``trio-mcp run``: serve the server of a file or module."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import trio

from trio_mcp.cli.exits import FAILED, INTERRUPTED, OK, Exit
from trio_mcp.cli.loading import load_server
from trio_mcp.server import Server

__all__ = ["run", "serve"]

# Which of the options each transport takes.
OPTIONS = {
    "stdio": (),
    "http": ("host", "port", "path"),
    "sse": ("host", "port", "path"),
    "websocket": ("host", "port", "path"),
}


def run(options: argparse.Namespace) -> int:
    """Run the command."""
    if options.reload:
        return _reload(options)
    return serve(options, lambda: load_server(options.server))


def _reload(options: argparse.Namespace) -> int:
    from trio_mcp.cli.reload import reload_process, reload_stdio, until_signalled

    source = Path(options.server.partition(":")[0])
    if source.suffix == ".py" and not source.is_file():
        raise Exit(f"there is no file {source}")
    if options.transport != "stdio" and options.port == 0:
        raise Exit("--reload needs a --port of its own: 0 would be another one each time")
    command = [sys.executable, "-m", "trio_mcp", "run", options.server, "--transport", options.transport]
    for name in ("host", "port", "path"):
        if (value := getattr(options, name)) is not None:
            command += [f"--{name}", str(value)]
    folder = source.resolve().parent if source.suffix == ".py" else Path.cwd()
    serve_again = reload_stdio if options.transport == "stdio" else reload_process
    received = trio.run(until_signalled, serve_again, command, folder)
    return INTERRUPTED if received == signal.SIGINT else OK


def serve(options: argparse.Namespace, make_server: Callable[[], Server]) -> int:
    """Serve in this process, until the client leaves or a signal comes.

    Args:
        options: The command line.
        make_server: Gives the server.
    """
    given = {name: getattr(options, name) for name in ("host", "port", "path") if getattr(options, name) is not None}
    transport = options.transport
    for name in given:
        if name not in OPTIONS.get(transport, given):
            raise Exit(f"--{name} is not for --transport {transport}")
    server = make_server()
    there = server._transports()
    if transport not in there:
        raise Exit(f"there is no transport {transport!r}; there are: {', '.join(there)}")
    try:
        server.run(transport, **_arguments(given))
    except (OSError, OverflowError) as exc:
        raise Exit(f"can't serve: {exc}", FAILED) from None
    return OK


def _arguments(given: dict[str, Any]) -> dict[str, Any]:
    path = given.pop("path", None)
    if path is None:
        return given
    from trio_mcp.server.http.options import HttpOptions

    try:
        return {**given, "options": HttpOptions(path=path)}
    except ValueError as exc:
        raise Exit(str(exc)) from None
