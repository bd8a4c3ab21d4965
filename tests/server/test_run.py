"""`Server.run` and `Server.serve_stdio`: a server as the main program of a process."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

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
def process() -> Iterator[subprocess.Popen[str]]:
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", PROGRAM], stdin=pipe, stdout=pipe, stderr=pipe, text=True) as started:
        try:
            yield started
        finally:
            started.kill()


def send(process: subprocess.Popen[str], method: str, number: int | None = None, **params: Any) -> None:
    assert process.stdin is not None
    message = {"jsonrpc": "2.0", "method": method, "params": params}
    print(json.dumps(message if number is None else {**message, "id": number}), file=process.stdin, flush=True)


def shake_hands(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    send(
        process,
        "initialize",
        0,
        protocolVersion="2025-11-25",
        capabilities={},
        clientInfo={"name": "t", "version": "1"},
    )
    assert json.loads(process.stdout.readline())["id"] == 0
    send(process, "notifications/initialized")


@pytest.mark.parametrize("tool", ["wait", "block", None])
def test_ctrl_c_ends_it_with_status_130_and_no_traceback(process: subprocess.Popen[str], tool: str | None) -> None:
    assert process.stderr is not None
    shake_hands(process)
    if tool is not None:
        send(process, "tools/call", 1, name=tool)
        assert process.stderr.readline() == "waiting\n"
    process.send_signal(signal.SIGINT)
    assert process.wait(30) == 130
    assert process.stderr.read() == ""


def test_the_end_of_input_ends_it_with_status_0(process: subprocess.Popen[str]) -> None:
    shake_hands(process)
    output, errors = process.communicate(timeout=30)
    assert (process.returncode, output, errors) == (0, "", "")


def test_a_tool_that_exits_ends_the_process(process: subprocess.Popen[str]) -> None:
    shake_hands(process)
    send(process, "tools/call", 1, name="leave")
    assert process.wait(30) == 7


async def test_a_client_uses_it() -> None:
    async with Client(StdioServerParameters(sys.executable, ["-c", PROGRAM])) as client:
        assert (await client.call_tool("add", {"a": 1, "b": 2})).data == 3


def test_an_unknown_transport_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown transport 'smoke'"):
        Server("test").run("smoke")


def test_a_tool_that_cannot_be_cancelled_does_not_keep_the_process_for_ever() -> None:
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
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    lines = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "shielded"}},
    ]
    done = subprocess.run(
        [sys.executable, "-c", program],
        input="".join(json.dumps(line) + "\n" for line in lines),
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert done.returncode == 1
    assert "still runs" in done.stderr
    assert "Traceback" not in done.stderr
