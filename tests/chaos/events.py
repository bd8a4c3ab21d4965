"""What happens to the processes and to what they share, one event after the other in each of two lanes."""

from __future__ import annotations

import contextlib
import random
import signal
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, ClassVar, Protocol

import attrs
import psutil
import trio

from tests.chaos.processes import Served
from tests.chaos.tools import DELAY, LEASE
from tests.waiting import eventually
from trio_mcp import Client, HttpServerParameters, TrioMcpError
from trio_mcp.stores import KeyRing


@attrs.define
class Event:
    """Something that happened.

    Attributes:
        kind: What.
        began: When, on the monotonic clock.
        ended: When it was over, and all that it had ended was there again.
        pid: The process, if it was one.
        until: When the cause was gone; otherwise it is ``ended``.
    """

    kind: str
    began: float
    ended: float = float("inf")
    pid: int = 0
    until: float = float("inf")


Does = Callable[[Event], Awaitable[None]]


class Shared(Protocol):
    """What the processes share.

    Attributes:
        away: The kinds of events in which the store can't be used, each with a pattern for what its errors say.
        lockable: Whether a process that is stopped inside a transaction keeps the others out.
        settings: What a process needs to find it.
    """

    away: ClassVar[dict[str, str]]
    lockable: ClassVar[bool]

    @property
    def settings(self) -> dict[str, Any]: ...

    def events(self, served: Served, rng: random.Random) -> dict[str, Does]:
        """Return what can happen to it."""

    def left(self) -> list[str]:
        """Return what should not be there once all processes have ended."""


class Events:
    """The events of a run.

    Args:
        served: The processes.
        shared: What they share.
        folder: Where the keys are.
        nursery: Runs what they start.
        seed: Decides which events, and when.
        pause: Seconds between two events of a lane at most.
    """

    def __init__(
        self, served: Served, shared: Shared, folder: Path, nursery: trio.Nursery, seed: str, pause: float
    ) -> None:
        self.all: list[Event] = []
        self._served, self._shared, self._folder, self._nursery, self._pause = served, shared, folder, nursery, pause
        self._rng = random.Random(seed)

    async def run(self, seconds: float) -> None:
        """Let things happen for some time; the last events end by themselves."""
        until = trio.current_time() + seconds
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._lane, self.processes(), until)
            nursery.start_soon(self._lane, self.shared(), until)

    async def _lane(self, kinds: dict[str, Does], until: float) -> None:
        bag: list[str] = []
        while trio.current_time() < until:
            if not bag:  # each kind as often as any other
                bag = self._rng.sample(list(kinds), len(kinds))
            await self.happen(kind := bag.pop(), kinds[kind])
            await trio.sleep(self._rng.uniform(0.3, self._pause))

    async def happen(self, kind: str, does: Does) -> None:
        """Let one thing happen, and note it."""
        event = Event(kind, time.monotonic())
        self.all.append(event)
        with trio.CancelScope(shield=True):  # nothing is left stopped, locked or full
            await does(event)
        event.ended = time.monotonic()
        event.until = min(event.until, event.ended)

    def processes(self) -> dict[str, Does]:
        """Return what happens to processes."""
        kinds: dict[str, Does] = {
            "SIGKILL of a child": lambda event: self._signal(event, signal.SIGKILL),
            "SIGTERM of a child": lambda event: self._signal(event, signal.SIGTERM),
            "SIGKILL of the supervisor": self._kill_supervisor,
            "SIGHUP": self._renew,
            "SIGSTOP until it is killed": self._freeze,
            "SIGSTOP beyond a lease": self._nap,
            "SIGKILL of the worker": lambda event: self._end_worker(event, signal.SIGKILL),
            "SIGTERM of the worker": lambda event: self._end_worker(event, signal.SIGTERM),
        }
        return {**kinds, "SIGSTOP inside a transaction": self._hold} if self._shared.lockable else kinds

    def shared(self) -> dict[str, Does]:
        """Return what happens to what they share."""
        return {**self._shared.events(self._served, self._rng), "new key": self._rotate}

    async def _rotate(self, event: Event) -> None:
        KeyRing.add(self._folder / "chaos.keys")
        await trio.sleep(DELAY)  # it signs from then on

    # --- of processes ------------------------------------------------------------------------------------------------

    def _one(self, event: Event) -> int:
        event.pid = self._rng.choice(sorted(self._served.children()))
        return event.pid

    async def _signal(self, event: Event, number: int) -> None:
        pid = self._one(event)
        self._served.send(pid, number)
        await self._replaced(pid)

    async def _replaced(self, pid: int) -> None:
        await eventually(lambda: pid not in self._served.children())
        await self._served.complete()

    async def _kill_supervisor(self, event: Event) -> None:
        assert self._served.supervisor is not None
        event.pid = self._served.supervisor.pid
        await self._served.kill_supervisor()
        await self._served.start_supervisor(self._nursery)

    async def _renew(self, event: Event) -> None:
        assert self._served.supervisor is not None
        self._served.supervisor.send_signal(signal.SIGHUP)
        await self._served.until_said("all processes have been replaced|so the others are not replaced", event.began)
        await self._served.complete()

    async def _freeze(self, event: Event) -> None:
        pid = self._one(event)
        self._served.send(pid, signal.SIGSTOP)
        await self._replaced(pid)

    async def _nap(self, event: Event) -> None:
        """Stop a child, or the worker, for longer than a lease; others may claim its tasks, or it is killed."""
        worker = self._served.worker
        assert worker is not None
        event.pid = pid = self._rng.choice([*self._served.children(), worker.pid])
        self._served.send(pid, signal.SIGSTOP)
        await trio.sleep(LEASE + self._rng.uniform(0.2, 1.5))
        self._served.send(pid, signal.SIGCONT)
        event.until = time.monotonic()
        await self._served.complete()

    async def _hold(self, event: Event) -> None:
        before = self._served.children()
        since = time.monotonic()
        target = HttpServerParameters(f"http://127.0.0.1:{self._served.port}/mcp")
        with trio.move_on_after(8), contextlib.suppress(TrioMcpError):
            async with Client(target, mode="2026-07-28") as client:
                await client.call_tool("hold", timeout=10)
        stopped = [pid for pid in before if _is_stopped(pid)]
        if stopped:
            event.pid = stopped[0]
            await self._replaced(stopped[0])
        else:
            # The connection may break before the death is noticed.
            gone = [pid for pid in before if _is_gone(pid) or self._served.deaths.get(pid, 0) >= since]
            event.pid = gone[0] if gone else 0
            await self._served.complete()

    async def _end_worker(self, event: Event, number: int) -> None:
        worker = self._served.worker
        assert worker is not None
        event.pid = worker.pid
        self._served.send(worker.pid, number)
        with trio.move_on_after(15) as scope:
            await worker.wait()
        if scope.cancelled_caught:
            self._served.said.append((time.monotonic(), f"the worker (pid {worker.pid}) did not end in time"))
            worker.kill()
        await self._served.start_worker(self._nursery)


def _is_stopped(pid: int) -> bool:
    return _state(pid) == psutil.STATUS_STOPPED


def _is_gone(pid: int) -> bool:
    return _state(pid) in (None, psutil.STATUS_ZOMBIE)


def _state(pid: int) -> str | None:
    try:
        return str(psutil.Process(pid).status())
    except psutil.NoSuchProcess:
        return None
