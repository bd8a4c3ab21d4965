"""The servers on stdio that can be measured here, all with the same tools."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from . import peers
from ._options import peer_installed
from ._processes import ROOT, server_command

if TYPE_CHECKING:
    from pathlib import Path

    from ._options import Options
    from ._wire import Era

ERAS: tuple[Era, ...] = ("modern", "legacy")


@attrs.frozen
class StdioServer:
    """A program, the era in which it is called, and from where it imports."""

    command: list[str]
    era: Era
    root: Path = ROOT


def stdio_servers(options: Options) -> dict[str, StdioServer]:
    """Return the servers by their labels: ours, those of the peers that are installed, and the bare limit."""
    found: dict[str, StdioServer] = {}
    for era in ERAS:
        found[f"ours, {era}"] = StdioServer(server_command("ours"), era)
        if options.before is not None:
            found[f"before, {era}"] = StdioServer(server_command("ours"), era, options.before)
        if peer_installed():
            found[f"official, {era}"] = StdioServer(server_command("official"), era)
            found[f"official on Trio, {era}"] = StdioServer(server_command("official", "trio"), era)
        if command := peers.typescript("stdio", "v2"):
            found[f"TypeScript v2, {era}"] = StdioServer(command, era)
        if command := peers.fastmcp():
            found[f"FastMCP, {era}"] = StdioServer(command, era)
    if command := peers.typescript("stdio", "v1"):
        found["TypeScript v1, legacy"] = StdioServer(command, "legacy")
    found["bare Trio loop"] = StdioServer(server_command("bare"), "modern")
    return options.select(found)
