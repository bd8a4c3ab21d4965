"""Helpers for the tests of the transports: small real children, and a cancellation at every step."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import psutil
import trio

import trio_mcp
from tests.forks import children
from trio_mcp import StdioServerParameters
from trio_mcp.jsonrpc.messages import Notification
from trio_mcp.low_level import BaseSession, SessionMessage, stdio_client

DEADLINE = 30
"""Seconds: a safety net for a machine under load, never a requirement."""

MARK = "TRIO_MCP_TRANSPORT_TEST"

# The checkout or wherever the package under test is installed.
PACKAGE_ROOT = str(Path(trio_mcp.__file__).parents[1])

ANSWER_EVERYTHING = """
    import json, sys
    for line in sys.stdin.buffer:
        message = json.loads(line)
        if "method" in message and "id" in message:
            answer = {"jsonrpc": "2.0", "id": message["id"], "result": {"params": message.get("params")}}
            print(json.dumps(answer), flush=True)
"""

# A shell starts ten times faster than Python; the first request of a session has the id 1.
SHELL_ANSWERS_FIRST = """read -r line; echo '{"jsonrpc":"2.0","id":1,"result":{}}'; while read -r line; do :; done"""


def python(code: str, *args: str, **options: Any) -> StdioServerParameters:
    """Return parameters for a child that runs a few lines of Python, without site packages so that it starts fast."""
    return StdioServerParameters(sys.executable, ["-I", "-S", "-c", textwrap.dedent(code), *args], **options)


def shell(code: str, **options: Any) -> StdioServerParameters:
    return StdioServerParameters("sh", ["-c", code], **options)


def kept_connections(http_client: httpx.AsyncClient) -> int:
    """Return the number of idle connections that an HTTP client keeps; no request may be under way or wait for one."""
    pool: Any = http_client._transport._pool  # type: ignore[attr-defined]  # noqa: SLF001 - httpx does not expose its pool
    assert pool._requests == []  # noqa: SLF001 - as above
    assert all(connection.is_idle() for connection in pool.connections)
    return len(pool.connections)


@asynccontextmanager
async def no_survivors() -> AsyncIterator[dict[str, str]]:
    """Yield environment variables for children; fail if a process that has them outlives the block, zombies included.

    A killed process that is not our child vanishes when its new parent reaps it, so it gets a moment.
    """
    mark = uuid.uuid4().hex
    before = set(children())
    yield {MARK: mark}
    zombies = [child for child in children() if child not in before]
    assert not zombies, "children that were not reaped"
    await vanished(mark)
    survivors = marked(mark)
    described = [process.as_dict(["pid", "ppid", "cmdline", "status"]) for process in survivors]
    for process in survivors:
        process.kill()
    assert not described, "processes that outlived their transport"


async def vanished(mark: str) -> None:
    """Wait until no process carries a mark, or until a time limit."""
    with trio.move_on_after(5):
        while marked(mark):  # noqa: ASYNC110 - only the process table knows
            await trio.sleep(0.01)


def marked(mark: str) -> list[psutil.Process]:
    """Return the living processes that carry a mark in their environment."""
    return [process for process in psutil.process_iter() if _carries(process, mark)]


def _carries(process: psutil.Process, mark: str) -> bool:
    try:
        return process.environ().get(MARK) == mark
    except (psutil.Error, OSError):  # gone meanwhile, or a zombie, which has no environment left
        return False


def open_descriptors() -> set[str]:
    """Return this process's open descriptors, by number and kind."""
    found = set()
    for number in os.listdir("/proc/self/fd"):
        try:
            found.add(f"{number} -> {os.readlink(f'/proc/self/fd/{number}')}")
        except OSError:
            continue  # the directory's own descriptor, closed meanwhile
    return found


class Recorder(trio.abc.SendStream):
    """A stream that records the data of each `send_all`, and runs `before` first."""

    def __init__(self, before: Callable[[], Any] | None = None) -> None:
        self.written: list[bytes] = []
        self.before = before

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        await trio.lowlevel.checkpoint()
        if self.before is not None:
            await self.before()
        self.written.append(bytes(data))

    async def wait_send_all_might_not_block(self) -> None:
        await trio.lowlevel.checkpoint()

    async def aclose(self) -> None:
        await trio.lowlevel.checkpoint()

    def lines(self) -> list[Any]:
        return [json.loads(line) for line in b"".join(self.written).splitlines()]


# Writes down what happens to it, in the order in which it does.
DIARY = """
    import signal, sys, time
    diary = open(sys.argv[1], "a", buffering=1)
    def on_term(*_):
        print("SIGTERM", file=diary)
        if "obey" in sys.argv:
            sys.exit()
    signal.signal(signal.SIGTERM, on_term)
    print('{"jsonrpc":"2.0","method":"ready"}', flush=True)
    sys.stdin.read()
    print("EOF", file=diary)
    while "linger" in sys.argv:
        time.sleep(0.01)
    print("exit", file=diary)
"""


async def ready(read: trio.abc.ReceiveChannel[SessionMessage]) -> None:
    """Wait for the message that a child sends when it is ready."""
    assert (await read.receive()).message == Notification("ready")


async def use(params: StdioServerParameters) -> None:
    """Connect to a child, wait until it is ready, and leave."""
    with trio.fail_after(DEADLINE):
        async with stdio_client(params) as (read, _):
            await ready(read)


@asynccontextmanager
async def session_with(params: StdioServerParameters, **options: Any) -> AsyncIterator[BaseSession]:
    """Connect to a child, and yield a session with it."""
    with trio.fail_after(DEADLINE):
        async with stdio_client(params) as link, BaseSession(*link, **options) as session:
            yield session


# --- servers: processes that `tests.peer` talks to -----------------------------------------------------------------

NOISY = [sys.executable, str(Path(__file__).with_name("noisy_server.py"))]


def run(command: list[str], sent: bytes, **options: Any) -> subprocess.CompletedProcess[bytes]:
    """As ``printf ... | server``: everything in one go, then the end of the input."""
    options = {"stdout": -1, "stderr": -1, "env": {**os.environ, "PYTHONPATH": PACKAGE_ROOT}, **options}
    return subprocess.run(command, input=sent, timeout=DEADLINE, check=False, **options)
