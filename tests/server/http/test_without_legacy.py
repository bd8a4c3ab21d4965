"""The modern era works whole where the folder of the handshake era has been deleted."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import trio_mcp

SCRIPT = """
import json
from functools import partial

import httpx
import trio

import trio_mcp
from trio_mcp import Client, HttpOptions, Server

server = Server("small")


@server.tool
async def add(a: int, b: int) -> int:
    return a + b


async def main():
    async with trio.open_nursery() as nursery:
        url = await nursery.start(partial(server.serve_http, port=0))
        async with Client(url) as client, client.listen(tools_list_changed=True):
            print(trio_mcp.__file__, (await client.call_tool("add", {"a": 1, "b": 2})).data)
        initialize = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
        message = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": initialize}
        async with httpx.AsyncClient(headers={"Accept": "application/json, text/event-stream"}) as http:
            refused = await http.post(url, json=message)
            print(refused.status_code, refused.json()["error"]["code"])
            print((await http.get(url)).status_code)
        nursery.cancel_scope.cancel()
    try:
        await server.serve_sse(port=0)
    except BaseException as exc:
        print(repr(exc))


trio.run(main)
"""


def test_without_the_folder_the_modern_era_is_served(tmp_path: Path) -> None:
    """Requests of the handshake era are refused as by a server that serves modern revisions alone."""
    home = Path(trio_mcp.__file__).parent
    shutil.copytree(home, tmp_path / "trio_mcp", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.rmtree(tmp_path / "trio_mcp" / "http" / "server" / "legacy")
    done = subprocess.run([sys.executable, "-c", SCRIPT], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    called, refused, get, sse = done.stdout.splitlines()
    assert called == f"{tmp_path / 'trio_mcp' / '__init__.py'} 3"
    assert (refused, get) == ("400 -32020", "405")
    assert "sse_path needs trio_mcp.http.server.legacy" in sse
