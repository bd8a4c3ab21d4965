"""The processes of the load, and what they cost."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import psutil
import trio

from tests.listening import hold, port_of

ROOT = Path(__file__).resolve().parents[2]


class Served:
    """A server process that can be ended and started again on the same ports, which are held for it meanwhile.

    Args:
        name: Its name.
        out: The folder of the run.
        ports: What it serves, each on a port of its own.
        module: What it runs.
        given: What else that is told.
    """

    def __init__(
        self, name: str, out: Path, *, ports: Iterable[str], module: str = "tests.soak.serve", **given: Any
    ) -> None:
        self.name, self._out, self._module = name, out, module
        self._held = {kind: hold() for kind in ports}
        numbers = {kind: port_of(held) for kind, held in self._held.items()}
        self._given = {"kind": "http", "name": name, "out": str(out), "ports": numbers, **given}
        self._process: trio.Process | None = None
        self.starts = 0

    @property
    def ports(self) -> dict[str, int]:
        ports: dict[str, int] = self._given["ports"]
        return ports

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    @property
    def figures(self) -> Path:
        return self._out / f"{self.name}.figures.jsonl"

    async def start(self) -> None:
        """Start it and wait until it serves."""
        ready = self._out / f"{self.name}.ready"
        ready.unlink(missing_ok=True)
        with (self._out / f"{self.name}.log").open("a") as log:
            command = [sys.executable, "-m", self._module, json.dumps(self._given)]
            environment = {**os.environ, "PYTHONPATH": ""}
            self._process = await trio.lowlevel.open_process(
                command, cwd=ROOT, stdin=subprocess.PIPE, stdout=log, stderr=log, env=environment
            )
        self.starts += 1
        with trio.fail_after(60):
            while not ready.exists():
                if self._process.poll() is not None:
                    raise RuntimeError(f"{self.name} ended with status {self._process.returncode}; see its log")
                await trio.sleep(0.02)

    def send(self, number: int) -> None:
        """Send it a signal."""
        if self._process is not None:
            self._process.send_signal(number)

    async def end(self, number: int) -> None:
        """Send it a signal and wait until it has exited."""
        if self._process is None:
            return
        self._process.send_signal(number)
        with trio.CancelScope(shield=True):
            with trio.move_on_after(15):
                await self._process.wait()
            if self._process.returncode is None:
                self._process.kill()
                await self._process.wait()
            if self._process.stdin is not None:
                await self._process.stdin.aclose()
        self._process = None

    def release(self) -> None:
        """Give up its ports: it is not started again."""
        for held in self._held.values():
            held.close()

    async def measured(self, number: int = signal.SIGUSR1) -> dict[str, Any]:
        """Have it write its figures; with SIGUSR2, after malloc has returned its free memory."""
        assert self._process is not None
        had = self.figures.stat().st_size if self.figures.exists() else 0
        self._process.send_signal(number)
        with trio.fail_after(30):
            while True:
                if self.figures.exists() and self.figures.stat().st_size > had:
                    text = self.figures.read_text()
                    if text.endswith("\n"):
                        said: dict[str, Any] = json.loads(text.splitlines()[-1])
                        return said
                await trio.sleep(0.02)


def outside(pid: int) -> dict[str, Any]:
    """Return what the operating system knows of a process: bytes, descriptors, threads, seconds of CPU."""
    process = psutil.Process(pid)
    with process.oneshot():
        times = process.cpu_times()
        return {
            "rss": process.memory_info().rss,
            "descriptors": process.num_fds(),
            "threads": process.num_threads(),
            "cpu": round(times.user + times.system, 2),
        }


async def restart_now_and_then(served: Served, rng: random.Random, every: float) -> None:
    """Kill a server, or ask it to end, and start it again after a while; forever."""
    while True:
        await trio.sleep(rng.uniform(0.5 * every, 1.5 * every))
        with trio.CancelScope(shield=True):  # never left ended
            await served.end(rng.choice((signal.SIGKILL, signal.SIGTERM)))
            await trio.sleep(rng.choice((0, 0, 1, 3)))
            await served.start()


async def kill_children_now_and_then(rng: random.Random, every: float, spared: set[int]) -> None:
    """Kill a stdio server that a client has started; forever."""
    while True:
        await trio.sleep(rng.uniform(0.5 * every, 1.5 * every))
        own = [child for child in psutil.Process().children() if child.pid not in spared and is_stdio(child)]
        if own:
            rng.choice(own).kill()


def is_stdio(process: psutil.Process) -> bool:
    """Whether it is a stdio server of clients that may lose their server."""
    try:
        return any('"stdio-killed"' in argument for argument in process.cmdline())
    except psutil.Error:
        return False
