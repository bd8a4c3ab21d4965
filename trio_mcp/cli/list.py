"""``trio-mcp list``: what a server offers."""

from __future__ import annotations

import argparse

from trio_mcp.cli.exits import OK
from trio_mcp.cli.outline import offered, outline
from trio_mcp.cli.targets import run_connected
from trio_mcp.cli.text import dumps
from trio_mcp.client import Client

__all__ = ["run"]


def run(options: argparse.Namespace) -> int:
    """Run the command."""
    return run_connected(options, _list)


async def _list(client: Client, options: argparse.Namespace) -> int:
    found = await offered(client, options.kinds)
    if options.json:
        print(dumps({kind: [item.to_wire() for item in items] for kind, items in found.items()}))
    else:
        print("\n\n".join(outline(kind, items) for kind, items in found.items()) or "the server offers nothing")
    return OK
