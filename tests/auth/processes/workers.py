"""A program: clients in processes of their own, which do as they are told. One that ends is followed by a fresh one.

It forks them outside any run of Trio. Each connects to the Unix socket that is the program's argument, and reads lines
of JSON: what to connect to, then calls to make. It writes a line about the end of each.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import h11  # noqa: F401 - so that no fork has to
import httpx
import trio

from trio_mcp import Client
from trio_mcp.auth import FileTokens, OAuth
from trio_mcp.auth.fetching import Fetcher
from trio_mcp.auth.rules.steps import Fetch, Fetched
from trio_mcp.errors import AuthorizationError


class Worker:
    """A process that uses a server: all its calls share one `OAuth`."""

    def __init__(self, told: trio.SocketStream, folder: str, url: str) -> None:
        self._told, self._url = told, url
        self._fetcher = Fetcher(url)
        self._ends: list[tuple[str, Callable[[], object]]] = []
        self._oauth = OAuth(store=FileTokens(folder), show=self._show, fetch=self._fetch, dpop="off")
        self._writing = trio.Lock()

    async def run(self, lines: trio.MemoryReceiveChannel[dict[str, Any]]) -> None:
        # The login stays in memory between calls, where it grows old.
        async with self._oauth.opened(self._url, contextlib.nullcontext), trio.open_nursery() as nursery:
            async for line in lines:
                nursery.start_soon(partial(self._call, **line))

    async def _call(self, number: int, tool: str, patience: float | None, end: str | None) -> None:
        with trio.CancelScope() as scope:
            if patience is not None:
                scope.deadline = trio.current_time() + patience
            how, _, moment = (end or "").partition(" ")
            act = scope.cancel if how == "cancelled" else lambda: os.kill(os.getpid(), signal.SIGKILL)
            self._ends.append(fate := (moment, act))
            outcome = "cancelled"
            try:
                async with Client(self._url, auth=self._oauth) as client:
                    await client.call_tool(tool)
                outcome = "answered"
            except AuthorizationError:
                outcome = "refused"
            except Exception as error:
                outcome = repr(error)
            finally:
                self._ends.remove(fate)
        async with self._writing:
            await self._told.send_all(json.dumps([number, outcome]).encode() + b"\n")

    async def _fetch(self, step: Fetch) -> Fetched:
        self._meet("asking", step)
        found = await self._fetcher.flow()(step)
        self._meet("answered", step)
        return found

    def _meet(self, moment: str, step: Fetch) -> None:
        for when, act in self._ends:
            if when == moment and step.step in ("token", "refresh"):
                act()

    async def _show(self, url: str) -> None:
        """Be the browser, and the person."""
        async with httpx.AsyncClient(follow_redirects=True, trust_env=False) as browser:
            await browser.get(url)


async def work(path: str) -> None:
    told = await trio.open_unix_socket(path)
    send, lines = trio.open_memory_channel[dict[str, Any]](100)

    async def read(task_status: trio.TaskStatus[Worker]) -> None:
        buffer, worker = b"", None
        with send:
            async for data in told:
                *whole, buffer = (buffer + data).split(b"\n")
                for line in map(json.loads, whole):
                    if worker is None:
                        task_status.started(worker := Worker(told, **line))
                    else:
                        send.send_nowait(line)
        os._exit(0)  # whatever calls still run

    async with trio.open_nursery() as nursery:
        await (await nursery.start(read)).run(lines)


if __name__ == "__main__":
    path, number = sys.argv[1], int(sys.argv[2])
    for _ in range(number):
        if not os.fork():
            break
    else:
        while True:
            status = os.waitstatus_to_exitcode(os.wait()[1])
            if status not in (0, -signal.SIGKILL):
                sys.exit(status)
            if not os.fork():
                break
    trio.run(work, path)
