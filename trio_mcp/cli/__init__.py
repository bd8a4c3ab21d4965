"""Floor 6: the command line."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

import trio

from trio_mcp._version import __version__
from trio_mcp.errors import TrioMcpError

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run ``trio-mcp``.

    Returns:
        The exit status: 0 for success, 1 for a failure that was reported, 2 for a wrong command line, 130 for Ctrl-C.
    """
    parser = argparse.ArgumentParser(prog="trio-mcp", description="The Model Context Protocol for Trio.")
    parser.add_argument("--version", action="version", version=f"trio-mcp {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    commands.add_parser("demo", help="start a server over each transport, call its tools, and show what happened")
    parser.parse_args(arguments)

    from trio_mcp.cli.demo import demo

    try:
        return trio.run(demo)
    except KeyboardInterrupt:
        return 130
    except TrioMcpError as exc:
        print(f"trio-mcp: {exc}", file=sys.stderr)
        return 1
