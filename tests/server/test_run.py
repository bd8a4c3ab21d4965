"""`Server.run` and `Server.serve_stdio`: a server as the main program of a process."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator

import pytest

from tests.peer import ProcessPeer, call, process_peer
from trio_mcp import Client, Server, StdioServerParameters

PROGRAM = """
import sys
import time
import trio
from trio_mcp import Server

server = Server("test")

@server.tool
async def wait() -> str:
    print("waiting", file=sys.stderr, flush=True)
    await trio.sleep_forever()

@server.tool
def block() -> str:
    print("waiting", file=sys.stderr, flush=True)
    time.sleep(3600)

@server.tool
def leave() -> None:
    raise SystemExit(7)

@server.tool
def add(a: int, b: int) -> int:
    return a + b

server.run()
"""


@pytest.fixture
def process() -> Iterator[ProcessPeer]:
    with process_peer([sys.executable, "-c", PROGRAM]) as peer:
        yield peer


@pytest.mark.parametrize("tool", ["wait", "block", None])
def test_ctrl_c_ends_run_with_status_130_and_no_traceback(process: ProcessPeer, tool: str | None) -> None:
    if tool is not None:
        process.send(call(1, tool))
        process.wait_for_error_text("waiting\n")
    process.process.send_signal(signal.SIGINT)
    assert process.exit() == 130
    assert process.errors == (b"" if tool is None else b"waiting\n")


def test_the_end_of_input_ends_run_with_status_0(process: ProcessPeer) -> None:
    process.close_input()
    assert (process.exit(), process.received, process.errors) == (0, b"", b"")


def test_a_tool_that_exits_ends_the_process(process: ProcessPeer) -> None:
    process.send(call(1, "leave"))
    assert process.exit() == 7


async def test_a_client_uses_it() -> None:
    async with Client(StdioServerParameters(sys.executable, ["-c", PROGRAM])) as client:
        assert (await client.call_tool("add", {"a": 1, "b": 2})).data == 3


def test_an_unknown_transport_is_refused() -> None:
    with pytest.raises(ValueError, match="transport must be one of stdio, http, sse; got 'smoke'"):
        Server("test").run("smoke")


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
