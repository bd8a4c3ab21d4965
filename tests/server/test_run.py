"""`Server.run` and `Server.serve_stdio`: a server as the main program of a process."""

from __future__ import annotations

import sys

from tests.peer import call, process_peer

PROGRAM = """
from trio_mcp import Server

server = Server("test")

@server.tool
def leave() -> None:
    raise SystemExit(7)

server.run()
"""


def test_a_tool_that_exits_ends_the_process() -> None:
    with process_peer([sys.executable, "-c", PROGRAM]) as peer:
        peer.send(call(1, "leave"))
        assert peer.exit() == 7


def test_a_tool_that_cannot_be_cancelled_does_not_keep_the_process_alive() -> None:
    program = """
import trio
import trio_mcp.server.base_server
from trio_mcp import Server

trio_mcp.server.base_server.EXIT_GRACE = 0.3
server = Server("test")

@server.tool
async def shielded() -> None:
    with trio.CancelScope(shield=True):
        await trio.sleep_forever()

server.run()
"""
    with process_peer([sys.executable, "-c", program]) as peer:
        peer.send(call(2, "shielded"))
        peer.close_input()
        assert peer.exit() == 1
    assert b"still run after" in peer.errors
    assert b"Traceback" not in peer.errors
