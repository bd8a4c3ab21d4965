"""The supervisor: it keeps the listening sockets, and a number of child processes that serve on them."""

from __future__ import annotations

import contextlib
import math
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable

import trio

from trio_mcp import _attrs as attrs
from trio_mcp._log import logger
from trio_mcp._nursery import background_nursery
from trio_mcp.http.serve import ServeSettings, listening
from trio_mcp.server.processes.children import Child, Launcher
from trio_mcp.server.processes.command import again, check_stores
from trio_mcp.server.processes.slots import Slot
from trio_mcp.server.signals import INTERRUPTED
from trio_mcp.stores.contract import LEASE, Stores

__all__ = ["Supervisor", "reap", "supervise"]

# All of these numbers are arbitrary choices, except where they say something else.
TICK = 1.0
"""Seconds between two looks at the child processes."""

MOST = 3.0
"""How many seconds of the time between two looks count: beyond that, the supervisor itself has not run."""

START = 60.0
"""How many seconds a child may take to be ready, before it is killed."""

SILENCE = 60.0
"""How many seconds a child may be silent, before it is killed.

It is only `LEASE`, that of what it holds in the stores, while others report that they can't write to them: it may
have been stopped inside a transaction.
"""

FUTILE = 5
"""How many children may end, before any has served, until the supervisor gives up."""


def supervise(
    name: str,
    count: int,
    host: str,
    port: int,
    settings: ServeSettings,
    *,
    stores: Stores | None,
    check: Callable[[], Awaitable[None]],
    sessions: bool,
) -> None:
    """Keep child processes running until SIGINT or SIGTERM, then let them shut down gracefully.

    A second signal kills them. SIGHUP replaces one after the other. Ctrl-C exits with status 130; if all ends because
    no child could serve, the status is that of the last one.

    Args:
        name: The name of the server.
        count: How many child processes there are.
        host: The address to listen on.
        port: The port to listen on.
        settings: The settings of the endpoint.
        stores: The stores of the server.
        check: Checks the files that the server needs.
        sessions: Whether the server has sessions of the legacy era unless it is ``stateless``.

    Raises:
        OSError: If the address can't be bound, or a certificate can't be used.
        TypeError, ValueError: If a setting or the file of keys is invalid, or the stores can't be shared.
        StoreError: If the stores can't be used.
        RuntimeError: If the program can't be started again.
    """
    command = again()
    check_stores(count, stores)
    # A descriptor below 3 can't be handed over, because it would take the place of a standard stream.
    while (descriptor := os.open(os.devnull, os.O_RDWR)) < 3:
        pass
    os.close(descriptor)
    with listening(host, port, settings) as (sockets, url, options):
        if count > 1 and stores is None and sessions and not options.settings["stateless"]:
            logger.warning(
                "each session of the legacy era lives in one of the %d processes, and its requests find it only on one "
                "connection: give the server stores, serve with stateless=True, or limit the server to modern "
                "revisions; see how-to/processes",
                count,
            )
        # Without this, each of the first children would end with the same error.
        trio.run(check)
        launcher = Launcher(command, sockets, options.settings["grace"])
        status = trio.run(Supervisor(name, url, launcher, count).run)
    if status:
        sys.exit(status)


@attrs.define(eq=False)
class Supervisor:
    """The supervisor of the child processes of one server.

    Args:
        name: The name of the server.
        url: The URL that they serve.
        launcher: Starts a child.
        count: How many there are.
    """

    _name: str
    _url: str
    _launcher: Launcher
    _count: int
    _living: set[Child] = attrs.Factory(set)
    _busy: float = -math.inf  # when a child that has ended last reported busy stores, by the `RunningClock`
    _launching: int = 0  # how many processes are being started, whose ids are not known yet
    _futile: int = 0  # how many children have ended before any has served
    _served: set[int] = attrs.Factory(set)  # the numbers of which a child has served
    _over: trio.Event = attrs.Factory(trio.Event)
    _status: int = 0
    _crew: trio.Nursery | None = None

    async def run(self) -> int:
        """Run until told to end, and return the exit status."""
        renew, renewals = trio.open_memory_channel[None](1)
        slots = [Slot(number, self) for number in range(1, self._count + 1)]
        with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM, signal.SIGHUP) as signals:
            async with background_nursery() as self._crew:
                self._crew.start_soon(self._look_after)
                self._crew.start_soon(self._take_signals, signals, renew)
                async with background_nursery() as nursery:
                    for slot in slots:
                        nursery.start_soon(slot.run)
                    nursery.start_soon(self._renew, slots, renewals)
                    await self._over.wait()
                # From here on no child is started any more.
                for child in self._living:
                    child.end()
                while self._living:
                    await next(iter(self._living)).ended.wait()
        return self._status

    def say(self, text: str) -> None:
        """Print a line to standard error."""
        with contextlib.suppress(OSError):  # standard error may be closed, or a file on a full disk
            print(f"{self._name}: {text}", file=sys.stderr, flush=True)

    # --- for the slots --------------------------------------------------------------------------------------------

    async def launch(self, number: int) -> Child:
        """Start a child process, and look after it until it has ended.

        Raises:
            OSError: If the system can't start a process.
        """
        assert self._crew is not None
        self._launching += 1
        try:
            # A process that has been started must be known, so this wait can't be cancelled: it takes milliseconds.
            with trio.CancelScope(shield=True):
                child = await self._launcher.launch(number)
        finally:
            self._launching -= 1
        self._living.add(child)
        self._crew.start_soon(self._accompany, child)
        return child

    async def _accompany(self, child: Child) -> None:
        async with background_nursery() as nursery:
            nursery.start_soon(self._greet, child)
            await child.run()
        self._living.discard(child)
        # One that can't open the stores as it starts reports that, and ends.
        self._busy = max(self._busy, child.busy)
        if self._over.is_set() and child.killed is not None:
            self.say(f"{child} {child.what_happened}")

    async def _greet(self, child: Child) -> None:
        await child.ready.wait()
        if child.number not in self._served:
            self._served.add(child.number)
            if len(self._served) == self._count:
                with contextlib.suppress(OSError):
                    what = "process" if self._count == 1 else "processes"
                    print(f"{self._name} serves {self._url} with {self._count} {what}", file=sys.stderr, flush=True)

    def note_failure(self, status: int) -> None:
        """Count a child that has ended or could not be started; give up if too many have before any has served.

        Args:
            status: Its exit status; negative if a signal has ended it.
        """
        if self._served:
            return
        self._futile += 1
        if self._futile >= FUTILE and not self._over.is_set():
            self.say(f"{FUTILE} processes in a row have ended before any has served, so the server ends")
            self._status = 128 - status if status < 0 else status or 1
            self._over.set()

    # --- signals --------------------------------------------------------------------------------------------------

    async def _take_signals(self, signals: AsyncIterator[int], renew: trio.MemorySendChannel[None]) -> None:
        terminal = _has_terminal()
        async for number in signals:
            if number == signal.SIGHUP and not (terminal and not _has_terminal()):
                # A second request is kept for the time after the first one; one more would change nothing.
                with contextlib.suppress(trio.WouldBlock):
                    renew.send_nowait(None)
            elif not self._over.is_set():
                # Only the first of these signals decides the exit status.
                self._status = INTERRUPTED if number == signal.SIGINT else 0
                self._over.set()
            else:
                for child in self._living:
                    child.kill("was still running at a second signal")

    async def _renew(self, slots: list[Slot], renewals: trio.MemoryReceiveChannel[None]) -> None:
        """Replace one child after the other, each time that this is asked for."""
        async for _ in renewals:
            self.say("replacing one process after the other")
            for slot in slots:
                if not await slot.renew():
                    self.say(f"the new process {slot.number} was never ready, so the others are not replaced")
                    break
            else:
                self.say("all processes have been replaced")

    # --- the look at the children ---------------------------------------------------------------------------------

    async def _look_after(self) -> None:
        clock = self._launcher.clock
        while True:
            await trio.sleep(TICK)
            clock.tick(MOST)
            for child in tuple(self._living):
                if (why := self._fault(child, clock.now)) is not None:
                    child.kill(why)
            # The first process of a container becomes the parent of orphans, and has to take their exit status. As long
            # as a process is being started, its id is unknown, so it would be mistaken for an orphan.
            if os.getpid() == 1 and not self._launching:
                reap({child.process.pid for child in self._living})

    def _fault(self, child: Child, now: float) -> str | None:
        """Return why a child has to be killed; None if it need not be."""
        if now >= child.end_by:
            return "did not end in time"
        if not child.ready.is_set():
            return f"was not ready after {START:g} s" if now - child.started >= START else None
        silent = now - child.heard
        busy = max((each.busy for each in self._living if each is not child), default=-math.inf)
        if silent >= LEASE and max(busy, self._busy) > child.heard:
            return f"was silent for {LEASE:g} s while others could not write to the stores"
        return f"was silent for {SILENCE:g} s" if silent >= SILENCE else None


def _has_terminal() -> bool:
    """Return whether this process has a terminal, whose end would be told by SIGHUP."""
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True


def reap(known: set[int]) -> None:
    """Take the exit status of each process that has ended and is not known: an orphan, which this process got.

    Args:
        known: The ids of the processes whose exit status a task waits for.
    """
    with contextlib.suppress(ChildProcessError):  # there are no child processes
        # WNOWAIT leaves the process as it is. If it is a known one, the task that waits for it takes its status first.
        while (found := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) and found.si_pid not in known:
            os.waitid(os.P_PID, found.si_pid, os.WEXITED | os.WNOHANG)
