"""A server as the main program of a process: how it ends, what it prints, what it loads."""

from __future__ import annotations

import errno
import io
import os
import signal
import subprocess
import sys

import pytest
import trio
import trio.testing

from tests.peer import call, process_peer
from trio_mcp.server.signals import run_http

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


class Full(io.StringIO):
    def write(self, text: str) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_an_http_server_serves_even_if_it_cannot_print_its_url(monkeypatch: pytest.MonkeyPatch) -> None:
    served = False

    async def serve(*, shutdown: trio.Event, task_status: trio.TaskStatus[str]) -> None:
        nonlocal served
        task_status.started("http://127.0.0.1:1/mcp")
        await trio.testing.wait_all_tasks_blocked()
        os.kill(os.getpid(), signal.SIGTERM)
        await shutdown.wait()
        served = True

    monkeypatch.setattr(sys, "stderr", Full())
    run_http("s", serve, {})
    assert served


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
