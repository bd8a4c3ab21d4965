"""Runs a program with several processes, and looks at them from outside."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import attrs
import psutil
import trio

from tests.waiting import eventually
from trio_mcp import Client
from trio_mcp._nursery import background_nursery
from trio_mcp.server.signals import CHILD

__all__ = ["PROGRAM", "Running", "running"]

PROGRAM = Path(__file__).with_name("program.py")
ROOT = Path(__file__).resolve().parents[3]
FAST = {"slots.PAUSES": [0.05], "supervisor.TICK": 0.1, "child.BEAT": 0.2}


@attrs.define
class Running:
    """A supervisor that runs.

    Attributes:
        process: The supervisor.
        url: What it serves.
        text: What it and its children have printed to standard error.
        seen: All children that there have been.
    """

    process: trio.Process
    url: str = ""
    text: str = ""
    seen: set[int] = attrs.Factory(set)

    def pids(self) -> set[int]:
        """Return the ids of the children that live now."""
        with contextlib.suppress(psutil.NoSuchProcess):
            found = {
                each.pid
                for each in psutil.Process(self.process.pid).children()
                # Importing Trio starts a process, too, to look for a library; it has no mark of the supervisor.
                if each.status() != psutil.STATUS_ZOMBIE and CHILD in each.environ()
            }
            self.seen |= found
            return found
        return set()

    async def until_said(self, pattern: str) -> re.Match[str]:
        def found() -> re.Match[str] | None:
            self.pids()
            return re.search(pattern, self.text)

        return await eventually(found)

    @contextlib.asynccontextmanager
    async def client(self) -> AsyncIterator[Client]:
        async with Client(self.url, mode="2026-07-28") as client:
            yield client

    async def call(self, tool: str, **arguments: Any) -> Any:
        """Call a tool on a connection of its own."""
        async with self.client() as client:
            return (await client.call_tool(tool, arguments)).data

    async def served_by(self, *pids: int) -> None:
        """Call until each of some processes has served a call."""
        missing = set(pids)
        while missing:
            missing.discard(await self.call("pid"))

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    async def ended(self) -> int:
        """Wait until it has ended, check that no child is left, and return its status."""
        status = await self.process.wait()
        await eventually(lambda: not any(psutil.pid_exists(pid) for pid in self.seen))
        return status


@contextlib.asynccontextmanager
async def running(
    *,
    constants: dict[str, Any] | None = None,
    start: Sequence[str] = (),
    command: Sequence[str] = (),
    stdin: Any = None,
    **words: Any,
) -> AsyncIterator[Running]:
    """Run the program until the end of the block, which then kills it.

    Args:
        constants: Time limits of the library to change.
        start: What starts the program; Python itself if it is empty.
        command: Another program, with its arguments.
        stdin: Its standard input.
        words: The arguments of `Server.run`.
    """
    settings = {"port": 0, "stateless": True, "constants": {**FAST, **(constants or {})}, **words}
    process = await trio.lowlevel.open_process(
        [*command] or [*(start or [sys.executable]), str(PROGRAM), json.dumps(settings)],
        stdin=stdin,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    made = Running(process)

    async def read() -> None:
        assert process.stderr is not None
        async for data in process.stderr:
            made.text += data.decode()

    with trio.fail_after(120):  # against a hang only
        async with background_nursery() as nursery:
            nursery.start_soon(read)
            try:
                found = await made.until_said(r"serves (\S+) with|Error: .*\n|so the server ends\n")
                made.url = found[1] or ""
                made.pids()
                yield made
            finally:
                for pid in {process.pid, *made.pids(), *made.seen}:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                with trio.CancelScope(shield=True):
                    await process.wait()
