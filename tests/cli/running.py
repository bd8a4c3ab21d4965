"""Run the command line as a user runs it, in a folder with a server's file."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tests import forks

__all__ = ["FASTMCP", "ROOT", "SHOP", "command", "environment", "run"]

ROOT = Path(__file__).resolve().parents[2]

SHOP = '''
import trio
from trio_mcp import Context, Server
from trio_mcp.types import URL_ELICITATION_REQUIRED  # a name that is not a server

server = Server("shop", version="1.0.0", instructions="Prices are in cents.", expose_errors=True)
print("imported")


@server.tool
async def price(item: str, pieces: int = 1) -> int:
    """What some pieces of an item cost."""
    return {"apple": 30, "pear": 45}[item] * pieces


@server.tool
async def pack(items: list[str], ctx: Context) -> str:
    """Pack items into a parcel."""
    for number, item in enumerate(items, 1):
        await ctx.report_progress(number, len(items), f"packed {item}")
    return f"a parcel of {len(items)}"


@server.tool
async def escape() -> str:
    """\\x1b[31mRed."""
    return "\\x1b]0;title\\x07text"


@server.tool
async def sleep() -> None:
    """Sleep."""
    await trio.sleep_forever()


@server.resource("shop://hours", mime_type="text/plain")
def hours() -> str:
    """When the shop is open."""
    return "9 to 5"


@server.resource("shop://logo", mime_type="image/png")
def logo() -> bytes:
    return b"\\x89PNG\\x00\\xff"


@server.prompt
def ad(item: str) -> str:
    """Advertise an item."""
    return f"Write about {item}."
'''


# What it looks like to us: the library need not be there.
FASTMCP = """
class FastMCP: ...
FastMCP.__module__ = "fastmcp.server.server"
mcp = FastMCP()
"""


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-W", "error", "-m", "trio_mcp", *arguments]


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT)}


def run(
    folder: Path, *arguments: str, stdin: str = "", imported: tuple[str, ...] = (), forking: bool = True
) -> subprocess.CompletedProcess[str]:
    """Run a command in a fork; by default, the servers that it starts from files are forks as well."""
    process = [*forks.command("trio_mcp", *forks.LOADED, *imported, options=("-W", "error")), *arguments]
    variables = environment() | (forks.FORKING if forking else {})
    return subprocess.run(process, cwd=folder, env=variables, input=stdin, capture_output=True, text=True, timeout=60)


def config(folder: Path, **servers: object) -> None:
    (folder / "mcp.json").write_text(json.dumps({"mcpServers": servers}))
