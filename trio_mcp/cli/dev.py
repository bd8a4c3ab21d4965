"""``trio-mcp dev``: open a server in the MCP Inspector, a program from the npm registry."""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any

import trio

from trio_mcp._nursery import background_nursery
from trio_mcp.cli.exits import FAILED, INTERRUPTED, OK, Exit
from trio_mcp.cli.targets import single_target
from trio_mcp.http.client.parameters import HttpServerParameters
from trio_mcp.stdio.parameters import StdioServerParameters
from trio_mcp.types.versions import LEGACY_REVISIONS

__all__ = ["run"]

PACKAGE = "@modelcontextprotocol/inspector"

GRACE = 5.0
"""How many seconds the Inspector has to end after a signal, and its child processes once it has ended (arbitrary)."""

POLL = 0.05
"""Seconds between two checks of whether the Inspector's child processes have ended: they must be polled, because they
are not children of this process."""


def run(options: argparse.Namespace) -> int:
    """Start the Inspector, and wait until it ends, or is ended by Ctrl-C."""
    entry = _entry(options, single_target(options, "the Inspector"))
    npx = shutil.which("npx")
    if npx is None:
        raise Exit(
            "the Inspector is started with npx, which is not in PATH: npx comes with Node.js (https://nodejs.org)",
            FAILED,
        )
    environment = dict(os.environ)
    if options.port is not None:
        environment["CLIENT_PORT"] = str(options.port)
    # The entry may contain secrets, so it is passed in a file rather than as an argument, which every user of the
    # machine could read. The folder is private to this user.
    with tempfile.TemporaryDirectory(prefix="trio-mcp-") as folder:
        file = Path(folder) / "mcp.json"
        file.write_text(json.dumps({"mcpServers": {_name(options): entry}}))
        print("trio-mcp dev: starting the MCP Inspector; Ctrl-C ends it", file=sys.stderr, flush=True)
        return trio.run(_inspect, [npx, PACKAGE, "--config", str(file)], environment)


def _entry(options: argparse.Namespace, target: StdioServerParameters | HttpServerParameters | str) -> dict[str, Any]:
    """Return the target as an entry of ``mcpServers``."""
    mode = options.mode
    era = mode if mode in ("auto", "legacy") else "legacy" if mode in LEGACY_REVISIONS else "modern"
    entry: dict[str, Any] = {"protocolEra": era}
    if isinstance(target, StdioServerParameters):
        entry |= {"type": "stdio", "command": target.command, "args": list(target.args), "env": dict(target.env)}
        return entry | ({} if target.cwd is None else {"cwd": str(target.cwd)})
    if isinstance(target, HttpServerParameters) and target.kind != "ws":
        kind = "sse" if target.kind == "sse" else "streamable-http"
        return entry | {"type": kind, "url": str(target.url), "headers": dict(target.headers)}
    # The Inspector supports only stdio, SSE and Streamable HTTP, so for other transports a bridge connects it to the
    # server.
    headers = [f"--header={': '.join(pair)}" for pair in options.header]
    variables = [f"--variable={'='.join(pair)}" for pair in options.variable]
    words = ["-m", "trio_mcp", "bridge", options.target, "--mode", mode, *headers, *variables]
    return entry | {"type": "stdio", "command": sys.executable, "args": words, "env": {}}


def _name(options: argparse.Namespace) -> str:
    source = options.target or Path(options.process[0]).name
    return re.sub(r"[^A-Za-z0-9_-]+", "-", source.removesuffix(".py")).strip("-")[:64] or "server"


async def _inspect(command: list[str], environment: dict[str, str]) -> int:
    """Run a command until it ends, and pass signals on to it; no process in its group survives.

    Returns:
        The exit status of this program.
    """
    received: list[int] = []
    patience = trio.CancelScope()
    # SIGHUP is passed on, too: if the terminal is closed, the system does not send it to the command, which has a
    # session of its own.
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM, signal.SIGHUP) as signals:
        # The command gets a session of its own, not only a process group: npx asks on the terminal whether it may
        # install the Inspector, and a background process group could not read the answer.
        process = await trio.lowlevel.open_process(command, env=environment, start_new_session=True)

        async def pass_on() -> None:
            async for number in signals:
                # A second signal means that the user doesn't want to wait until the command ends.
                _signal(process.pid, signal.SIGKILL if received else number)
                received.append(number)
                patience.deadline = trio.current_time() + GRACE

        try:
            async with background_nursery() as nursery:
                nursery.start_soon(pass_on)
                with patience:
                    await process.wait()
                    patience.deadline = min(patience.deadline, trio.current_time() + GRACE)
                    while _signal(process.pid, 0):  # noqa: ASYNC110 - see POLL
                        await trio.sleep(POLL)
        finally:
            _signal(process.pid, signal.SIGKILL)
            with trio.CancelScope(shield=True):  # a killed process ends at once
                await process.wait()
    if received:
        return INTERRUPTED if received[0] == signal.SIGINT else OK
    return FAILED if process.returncode else OK


def _signal(group: int, number: int) -> bool:
    """Send a signal to a process group; return whether the group still exists."""
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # a process in the group runs as another user, so the group still exists
    return True
