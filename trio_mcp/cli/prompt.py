"""``trio-mcp prompt``: a prompt, filled in."""

from __future__ import annotations

import argparse

from trio_mcp.cli.blocks import block_text
from trio_mcp.cli.exits import OK
from trio_mcp.cli.targets import run_connected
from trio_mcp.cli.text import clean, dumps
from trio_mcp.client import Client

__all__ = ["run"]


def run(options: argparse.Namespace) -> int:
    """Run the command."""
    return run_connected(options, _prompt)


async def _prompt(client: Client, options: argparse.Namespace) -> int:
    filled = await client.get_prompt(options.prompt, dict(options.arguments))
    if options.json:
        print(dumps(filled.to_wire()))
        return OK
    for message in filled.messages:
        print(f"{message.role}: {clean(block_text(message.content))}")
    return OK
