"""The supervisor with its children, and the worker, as the driver starts, watches and ends them."""

from __future__ import annotations

import contextlib
import json
import os
import re
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import trio

from tests.listening import port_of
from tests.waiting import eventually

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = Path(__file__).with_name("serve.py")

DEATH = re.compile(r"\(pid (\d+)\) (was killed by SIG\w+|.* was killed|.* and was killed|exited with status \d+)")


class Served:
    """The supervisor and the worker.

    Args:
        folder: Where the keys, the ledger and the log are.
        settings: What a process needs to find what they share.
        plant: A key of `PLANTED`, or None.

    Attributes:
        port: Where the supervisor listens, each time.
        deaths: When each process was killed, on the monotonic clock; one that was asked to end is not among them.
        said: What the supervisor and its children have printed, with the time.
    """

    def __init__(self, folder: Path, settings: dict[str, Any], plant: str | None) -> None:
        # Held for the supervisors, one after another: of sockets that are not listening, several may have the address.
        self._held = socket.socket()
        self._held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._held.bind(("127.0.0.1", 0))
        self.port = port_of(self._held)
        self.supervisor: trio.Process | None = None
        self.worker: trio.Process | None = None
        self.deaths: dict[int, float] = {}
        self.said: list[tuple[float, str]] = []
        self._settings = json.dumps({"folder": str(folder), "port": self.port, "plant": plant, **settings})
        self._log = (folder / "server.log").open("w")

    async def start_supervisor(self, nursery: trio.Nursery) -> None:
        """Start it, and wait until its children serve."""
        ready = False
        while not ready:  # it ends if the store is away: a service manager would try again
            since = time.monotonic()
            self.supervisor = await self._start(nursery, [str(PROGRAM), self._settings])
            ready = await self._has_said(self.supervisor, r"serves \S+ with 3 processes", since)

    async def start_worker(self, nursery: trio.Nursery) -> None:
        """Start it, and wait until it runs tasks."""
        ready = False
        while not ready:
            since = time.monotonic()
            words = ["-m", "trio_mcp", "worker", str(PROGRAM), "--", self._settings]
            self.worker = await self._start(nursery, words)
            ready = await self._has_said(self.worker, "running the tasks", since)

    async def _has_said(self, process: trio.Process, pattern: str, since: float) -> bool:
        """Wait until a process has said something, and return True, or until it has ended."""
        async with trio.open_nursery() as nursery:

            async def end() -> None:
                await process.wait()
                nursery.cancel_scope.cancel()

            nursery.start_soon(end)
            await self.until_said(pattern, since)
            nursery.cancel_scope.cancel()
            return True
        return False

    async def _start(self, nursery: trio.Nursery, words: list[str]) -> trio.Process:
        process = await trio.lowlevel.open_process(
            [sys.executable, *words], stderr=subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(ROOT)}
        )
        nursery.start_soon(self._read, process)
        return process

    async def _read(self, process: trio.Process) -> None:
        """Take what it and its children print: not into a file, for which the limit would count."""
        assert process.stderr is not None
        rest = ""
        async for data in process.stderr:
            *lines, rest = (rest + data.decode(errors="replace")).split("\n")
            for line in lines:
                now = time.monotonic()
                self.said.append((now, line))
                print(f"{now:.3f} {process.pid} {line}", file=self._log, flush=True)
                if (found := DEATH.search(line)) and "exited" not in line:
                    self.deaths.setdefault(int(found[1]), now)
        await process.wait()

    async def until_said(self, pattern: str, since: float) -> str:
        """Wait until something was said, and return it."""
        expression = re.compile(pattern)
        place = len(self.said)
        while place and self.said[place - 1][0] >= since:
            place -= 1
        while True:
            while place < len(self.said):
                if found := expression.search(self.said[place][1]):
                    return found[0]
                place += 1
            await trio.sleep(0.02)

    def children(self) -> list[int]:
        """Return the ids of the supervisor's children that live now."""
        if self.supervisor is None:
            return []
        with contextlib.suppress(psutil.NoSuchProcess):
            of = psutil.Process(self.supervisor.pid)
            return [each.pid for each in of.children() if each.status() != psutil.STATUS_ZOMBIE]
        return []

    def all(self) -> list[int]:
        """Return the ids of all processes that live now."""
        each = [process.pid for process in (self.supervisor, self.worker) if process and process.returncode is None]
        return [*each, *self.children()]

    async def complete(self) -> None:
        """Wait until there are three children again."""
        await eventually(lambda: len(self.children()) == 3)

    def send(self, pid: int, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
            if number == signal.SIGKILL:
                self.deaths.setdefault(pid, time.monotonic())

    async def kill_supervisor(self) -> None:
        """Kill the supervisor, and wait until its children have ended by themselves."""
        assert self.supervisor is not None
        left = self.children()
        self.supervisor.kill()
        await self.supervisor.wait()
        await eventually(lambda: not any(map(_runs, left)))

    @contextlib.contextmanager
    def on_full_disk(self) -> Iterator[None]:
        """Let no process write to any file, as on a full disk; this process need not be root's."""
        try:
            self._limit(full=True)
            yield
        finally:
            for _ in range(2):  # also those that a process with the limit has just started
                self._limit(full=False)

    def _limit(self, *, full: bool) -> None:
        for pid in self.all():
            with contextlib.suppress(ProcessLookupError):
                _, most = resource.prlimit(pid, resource.RLIMIT_FSIZE)
                resource.prlimit(pid, resource.RLIMIT_FSIZE, (0 if full else most, most))

    async def end(self) -> None:
        """End both, gracefully if they do so in time."""
        living = self.all()
        for process in (self.supervisor, self.worker):
            if process is not None and process.returncode is None:
                process.terminate()
        with trio.CancelScope(shield=True):
            with trio.move_on_after(15):
                await eventually(lambda: not any(map(_runs, living)))
        self._held.close()

    def kill_all(self) -> list[int]:
        """Kill what is left, and return the ids."""
        left = [each.pid for each in psutil.process_iter() if _runs(each.pid) and _is_ours(each.pid, self._settings)]
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._log.close()
        return left

    def connections(self) -> list[str]:
        """Return the sockets on the port that are still open; those that only wait for late packets are not."""
        waiting = (psutil.CONN_TIME_WAIT, psutil.CONN_CLOSE)
        return [
            f"{each.laddr} {each.raddr} {each.status}"
            for each in psutil.net_connections("tcp4")
            if self.port in [address.port for address in (each.laddr, each.raddr) if address]
            and each.status not in waiting
        ]


def _runs(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def _is_ours(pid: int, settings: str) -> bool:
    """Whether a process is one of this run."""
    try:
        return settings in psutil.Process(pid).cmdline()
    except psutil.Error:
        return False
