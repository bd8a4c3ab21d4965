"""The server named on the command line, and the connection to it."""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import attrs

from trio_mcp.cli.exits import USAGE, Exit
from trio_mcp.cli.terminal import Dialogue, has_terminal
from trio_mcp.cli.text import clean_line
from trio_mcp.client.answers.sources import Answers
from trio_mcp.client.client import Client
from trio_mcp.client.config.reading import Configured, read_config
from trio_mcp.client.targets import SCHEMES
from trio_mcp.errors import ProcessExited
from trio_mcp.http.client.parameters import HttpServerParameters
from trio_mcp.sockets.addresses import read_address
from trio_mcp.stdio.parameters import StdioServerParameters
from trio_mcp.types.notices import LoggingMessageNotificationParams

__all__ = ["connected", "target_of"]

# The name is required here: a bare word is more likely a mistyped command than a module.
MODULE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")


def target_of(options: argparse.Namespace) -> Configured:
    """Return the target for a `Client`.

    Raises:
        Exit: If the command line names none, or an invalid one.
        ConfigError: If the configuration is invalid.
    """
    env, headers = dict(options.env), dict(options.header)
    try:
        process = options.process
        if process is None:
            found = _named(options.target, dict(options.variable))
        else:
            found = StdioServerParameters(process[0], process[1:])
        if isinstance(found, StdioServerParameters):
            found = attrs.evolve(found, env={**found.env, **env})
        elif env:
            raise Exit("--env is for servers that are started as a process")
        if isinstance(found, HttpServerParameters):
            found = attrs.evolve(found, headers={**found.headers, **headers})
        elif headers:
            raise Exit("--header is for servers that are reached over HTTP or WebSocket")
        return found
    except (TypeError, ValueError) as exc:
        raise Exit(str(exc)) from None


def _named(name: str, variables: dict[str, str]) -> Configured:
    # A URL comes first, since it may end in `.json` or `.py` like the others.
    scheme, separator, rest = name.partition(":")
    match scheme.lower():
        case "http" | "https" if rest.startswith("//"):
            return HttpServerParameters(name)
        case "ws" | "wss" if rest.startswith("//"):
            return HttpServerParameters(name, kind="ws")
        case "tcp" | "tls" | "unix" if separator:
            return read_address(name).url
    if rest.startswith("//"):
        raise Exit(f"a URL must begin with one of {', '.join(SCHEMES)}; got {scheme}://")
    path, _, entry = name.partition("#")
    if path.endswith((".json", ".jsonc", ".yaml", ".yml")):
        return _configured(path, entry, variables)
    file = name.partition(":")[0]
    if file.endswith(".py") and not os.path.isfile(file):
        raise Exit(f"{file}: there is no such file")
    if file.endswith(".py") or MODULE.fullmatch(name):
        # In a process, as a host would start it: its output, and its crash, must not affect this one.
        # The process gets a short list of variables only; without this one it might not find what this process finds.
        path = os.environ.get("PYTHONPATH", "")
        return StdioServerParameters(
            sys.executable, ["-m", "trio_mcp", "run", name], env={"PYTHONPATH": path} if path else {}
        )
    raise Exit(
        f"{name!r} is not a target: it must be a Python file, package.module:name, mcp.json#name or a URL; "
        f"a command that starts a server goes after --, at the end of the line"
    )


def _configured(path: str, name: str, variables: dict[str, str]) -> Configured:
    config = read_config(path, variables=variables)
    if not name and len(config.names) != 1:
        names = ", ".join(config.names) or "none"
        raise Exit(f"{path} has several servers, or none: write {path}#NAME; its servers are: {names}")
    # Only this one is judged: another may be broken, or lack its variables.
    return config.target(name or config.names[0])


@contextlib.asynccontextmanager
async def connected(options: argparse.Namespace, before_asking: Callable[[], object]) -> AsyncIterator[Client]:
    """Connect to the server named on the command line, while the block runs.

    With a terminal, the server may ask its user. There is no language model to ask.

    Args:
        options: The command line.
        before_asking: Called before the user is asked something on behalf of the server.
    """
    # Without a terminal elicitation is not declared, so that the server knows not to ask.
    dialogue = Dialogue(before_asking) if has_terminal() else None
    roots = [Path(root).resolve() for root in options.root] if options.root else None  # noqa: ASYNC240 - nothing runs yet
    settings: dict[str, Any] = {} if options.timeout is None else {"timeout": options.timeout}
    if options.log_level is not None:
        settings |= {"log_level": options.log_level, "on_log": _show_log}
    target = target_of(options)
    try:
        client = Client(target, mode=options.mode, answers=Answers(elicitation=dialogue, roots=roots), **settings)
    except ValueError as exc:
        raise Exit(str(exc), USAGE) from None
    try:
        async with client:
            # Known only once connected.
            if dialogue is not None and client.server_info is not None:
                dialogue.asker = client.server_info.name
            yield client
    except ProcessExited as exc:
        # Without the standard error that it quotes: the process wrote that to ours already.
        raise ProcessExited(exc.command, exc.returncode) from None


def _show_log(message: LoggingMessageNotificationParams) -> None:
    data = message.data if isinstance(message.data, str) else repr(message.data)
    name = f" {clean_line(message.logger)}" if message.logger else ""
    # Standard output is for the result alone, which a program may read.
    print(f"[{message.level}]{name}: {clean_line(data)}", file=sys.stderr)
