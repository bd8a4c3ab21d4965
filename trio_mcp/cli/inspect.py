"""``trio-mcp inspect``: all that a server says of itself, and all that it offers."""

from __future__ import annotations

import argparse
from typing import Any

from trio_mcp.cli.exits import OK
from trio_mcp.cli.outline import offered, outline
from trio_mcp.cli.targets import run_connected
from trio_mcp.cli.text import clean_line, dumps, paragraph
from trio_mcp.client import Client

__all__ = ["run"]


def run(options: argparse.Namespace) -> int:
    """Run the command."""
    return run_connected(options, _inspect)


async def _inspect(client: Client, options: argparse.Namespace) -> int:
    found = await offered(client)
    capabilities = client.capabilities.to_wire()
    if options.json:
        info = client.server_info
        about = {
            "serverInfo": None if info is None else info.to_wire(),
            "protocolVersion": client.protocol_version,
            "capabilities": capabilities,
            "instructions": client.instructions,
        }
        print(dumps(about | {kind: [item.to_wire() for item in items] for kind, items in found.items()}))
        return OK
    print(_heading(client))
    print(f"  protocol: {client.protocol_version}")
    print("  capabilities")
    for name, settings in sorted(capabilities.items()):
        print(f"    {clean_line(name)}{_settings(settings)}")
    if client.instructions:
        print("  instructions")
        print(paragraph(client.instructions, "    "))
    for kind, items in found.items():
        print(outline(kind, items, "  "))
    return OK


def _heading(client: Client) -> str:
    info = client.server_info
    if info is None:
        return "a server that does not say its name"
    title = f" ({clean_line(info.title)})" if info.title and info.title != info.name else ""
    return f"{clean_line(info.name)} {clean_line(info.version)}{title}"


def _settings(settings: Any) -> str:
    if not isinstance(settings, dict):
        return ""
    shown = [name if value is True else f"{name}: {value}" for name, value in settings.items() if value is not False]
    return f": {clean_line(', '.join(shown))}" if shown else ""
