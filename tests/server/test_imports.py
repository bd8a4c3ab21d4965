"""What starting a server costs: it loads what a server needs, and no more (a stdio server is started for each use)."""

from __future__ import annotations

import subprocess
import sys

SERVED = """
import sys
from trio_mcp import Server
server = Server("test")
@server.tool
def add(a: int, b: int) -> int:
    '''Add.'''
    return a + b
print(*sys.modules)
"""


def test_a_server_with_a_tool_loads_no_client_no_http_and_no_second_event_loop() -> None:
    done = subprocess.run([sys.executable, "-c", SERVED], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert "trio_mcp.server" in loaded
    unwanted = {
        "asyncio", "anyio", "httpx", "hypercorn", "trio_websocket", "jsonschema_rs", "urllib.request",
        "trio_mcp.client", "trio_mcp.cli", "trio_mcp.types.tasks", "trio_mcp.types.sampling",
    }  # fmt: skip
    assert loaded.isdisjoint(unwanted), loaded & unwanted
