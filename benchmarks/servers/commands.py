"""The commands of the programs in this folder, and which servers can be measured here."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from benchmarks import peers
from benchmarks.measure.processes import LINUX, ROOT, python
from benchmarks.options import peer_installed

if TYPE_CHECKING:
    from benchmarks.load.wire import Era
    from benchmarks.options import Options

PROGRAMS = Path(__file__).resolve().parent
RUNNERS = ("hypercorn", "h11", "httptools")
ERAS: tuple[Era, ...] = ("modern", "legacy")


def server_command(name: str, *arguments: str) -> list[str]:
    """Return the command of a program in this folder, e.g. ``server_command("official", "trio")``."""
    return python(str(PROGRAMS / f"{name}.py"), *arguments)


def installed_runners() -> list[str]:
    """Return the runners of the HTTP server that work here: our own need Linux, and one of them httptools."""
    found = RUNNERS if LINUX else RUNNERS[:1]
    return [name for name in found if name != "httptools" or importlib.util.find_spec("httptools")]


def our_server(runner: str, **settings: Any) -> list[str]:
    """Return the command of our server over HTTP on a runner, with these settings of ``serve_http``."""
    return server_command("http_ours", json.dumps({"runner": runner, **settings}))


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
