"""``trio-mcp config``: print how a host starts a server, in the form that most hosts read."""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from trio_mcp.cli.editing import snippet
from trio_mcp.cli.exits import OK, Exit
from trio_mcp.cli.messages import near_file

__all__ = ["MODULE", "is_url", "plain_entry", "run", "server_name"]

DOTTED = r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*"
MODULE = re.compile(rf"({DOTTED})(:{DOTTED})?")
# These names of files and folders say nothing about the server, so the server is named after the parent folder.
GENERIC = ("__init__", "__main__", "app", "main", "mcp", "mcp_server", "server", "src")
# Every host accepts a name that matches this pattern. Other names are refused, because hosts often derive tools' names
# from it.
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


def run(options: argparse.Namespace) -> int:
    """Print an ``mcpServers`` file with the server's entry."""
    print(snippet("mcpServers", server_name(options), plain_entry(options)), end="")
    return OK


def is_url(source: str) -> bool:
    """Return whether the FILE given on the command line is a URL."""
    return re.match(r"[A-Za-z][A-Za-z0-9+.-]*://|(?i:unix|tcp|tls):", source) is not None


def server_name(options: argparse.Namespace) -> str:
    """Return the name under which a host lists the server.

    Raises:
        Exit: If some hosts would not accept the name, or a URL is malformed.
    """
    source: str = options.server
    name: str | None = options.name
    if name is None:
        file = source.partition(":")[0]
        if is_url(source):
            try:
                stem = urlsplit(source).hostname or ""
            except ValueError as exc:
                raise Exit(f"{source!r} is not a valid URL: {exc}") from None
        else:
            words = Path(os.path.abspath(file)).with_suffix("").parts if file.endswith(".py") else file.split(".")
            stem = next((word for word in reversed(words) if word not in GENERIC), "")
        name = re.sub(r"[^A-Za-z0-9_-]+", "-", stem).strip("-_")[:64] or "server"
    if not NAME.fullmatch(name):
        raise Exit(
            f"a server's name may contain only letters, digits, - and _, and at most 64 characters; got {name!r}"
        )
    return name


def plain_entry(options: argparse.Namespace, *, only_commands: bool = False) -> dict[str, Any]:
    """Return the entry of ``mcpServers`` for the server that a command line names.

    Args:
        options: The command line.
        only_commands: Whether the host can only start commands, so that a URL needs a bridge.

    Raises:
        Exit: If there is no such server, or an option or argument of the command line does not apply to it.
    """
    source: str = options.server
    if not is_url(source):
        return _process(
            options, ["run", _found(source), *(["--", *options.file_arguments] * bool(options.file_arguments))]
        )
    if options.file_arguments:
        raise Exit(f"the words after -- are arguments of a server's file, but {source} is a URL")
    # The client is imported only in this branch, because only a URL needs it.
    from trio_mcp.client.targets import link_factory

    try:
        link_factory(source)
    except (TypeError, ValueError) as exc:
        raise Exit(str(exc)) from None
    # A bridge is needed for hosts that can only start commands, and for transports that hosts don't support.
    if only_commands or not source.lower().startswith(("http://", "https://")):
        return _process(options, ["bridge", source])
    if options.env:
        raise Exit("--env is for servers that are started as a process")
    return {"url": source}


def _process(options: argparse.Namespace, words: list[str]) -> dict[str, Any]:
    # The path is absolute: hosts search a PATH of their own, which has no virtual environments.
    entry: dict[str, Any] = {"command": os.path.abspath(sys.executable), "args": ["-m", "trio_mcp", *words]}
    entry |= {"env": dict(options.env)} if options.env else {}
    try:
        json.dumps(entry, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        # The message does not quote the argument, which may be a secret.
        raise Exit(
            "a command-line argument is not valid UTF-8, so it can't be written to a host's configuration file"
        ) from None
    return entry


def _found(source: str) -> str:
    """Return a server's name in the form by which ``trio-mcp run`` finds it from any folder."""
    file, colon, attribute = source.partition(":")
    if file.endswith(".py"):
        if not os.path.isfile(file):
            raise Exit(f"there is no file {file!r}{near_file(file)}")
        # A symbolic link is not resolved, because it may point to another version later.
        return os.path.abspath(file) + colon + attribute
    if MODULE.fullmatch(source):
        return source
    raise Exit(f"{source!r} is neither a server's file, such as server.py, nor package.module:name nor a URL")
