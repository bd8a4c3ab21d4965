"""Child processes as the supervisor sees them: how one is started, what it has reported, and how it ends."""

from __future__ import annotations

import contextlib
import math
import os
import secrets
import signal
import socket
import subprocess
import time
from collections.abc import Awaitable, Callable, Sequence

import trio

from trio_mcp import _attrs as attrs
from trio_mcp._nursery import background_nursery
from trio_mcp.server.processes.child import BUSY, EXTRA, MAX_LINE, READY
from trio_mcp.server.signals import CHILD

__all__ = ["Child", "Launcher", "RunningClock", "first_of"]


@attrs.define
class RunningClock:
    """A clock that stands still while this process is stopped or the machine sleeps.

    Silence and time limits are measured by it: when the supervisor itself has not run, its children are not to blame.

    Attributes:
        now: The time in seconds.
    """

    now: float = 0.0
    _last: float = attrs.Factory(time.monotonic)

    def tick(self, most: float) -> None:
        """Advance the clock by the time since the last call, but by ``most`` seconds at the most."""
        last, self._last = self._last, time.monotonic()
        self.now += min(self._last - last, most)


@attrs.define(eq=False)
class Child:
    """A child process.

    Attributes:
        number: Its number, from 1 on.
        process: The process.
        started: When it was started, by the `RunningClock`.
        heard: When it last gave a sign of life, by the same clock.
        busy: When it last reported that the stores are busy, by the same clock; minus infinity for never.
        end_by: When it is killed, by the same clock, because it has been told to end; infinity if it has not.
        lived: How many seconds it has lived, once it has ended.
        killed: Why the supervisor has killed it, if it has.
        ready: Set when it serves.
        ended: Set when it has ended.
    """

    number: int
    process: trio.Process
    _clock: RunningClock
    _grace: float
    _control: int
    _reports: trio.lowlevel.FdStream
    started: float = attrs.field()
    heard: float = attrs.field()
    busy: float = -math.inf
    end_by: float = math.inf
    lived: float = 0.0
    killed: str | None = None
    ready: trio.Event = attrs.Factory(trio.Event)
    ended: trio.Event = attrs.Factory(trio.Event)
    _born: float = attrs.field(init=False, factory=lambda: time.monotonic())

    @started.default
    @heard.default
    def _now(self) -> float:
        return self._clock.now

    def __str__(self) -> str:
        return f"process {self.number} (pid {self.process.pid})"

    async def run(self) -> None:
        """Take the reports of the process until it has ended."""
        try:
            async with background_nursery() as nursery:
                nursery.start_soon(self._hear)
                await self.process.wait()
        finally:
            os.close(self._control)
            self.lived = time.monotonic() - self._born
            self.ended.set()

    async def _hear(self) -> None:
        rest = b""
        async with self._reports:
            with contextlib.suppress(trio.BrokenResourceError):
                async for data in self._reports:
                    self.heard = self._clock.now
                    *lines, rest = (rest + data).split(b"\n")
                    rest = rest[:MAX_LINE]  # no line is as long as that
                    for line in lines:
                        if line == READY:
                            self.ready.set()
                        elif line.startswith(BUSY):
                            self.busy = self._clock.now

    def end(self) -> None:
        """Tell the process to end; it is killed if it does not within its grace period and a few seconds more."""
        if self.end_by == math.inf:
            self.end_by = self._clock.now + self._grace + EXTRA
            self.process.send_signal(signal.SIGTERM)

    def kill(self, why: str) -> None:
        """Kill the process."""
        self.killed = self.killed or why
        self.process.kill()

    @property
    def what_happened(self) -> str:
        """The cause of the end of the process, as a part of a sentence."""
        if self.killed is not None:
            return f"{self.killed} and was killed"
        status = self.process.returncode or 0
        if status >= 0:
            return f"exited with status {status}"
        try:
            return f"was killed by {signal.Signals(-status).name}"
        except ValueError:  # most real-time signals have no name
            return f"was killed by signal {-status}"


@attrs.frozen
class Launcher:
    """Starts child processes.

    Attributes:
        command: The command of each.
        sockets: The scheme and the socket of each address.
        grace: The number of seconds that a child gives requests under way when it has to end.
        clock: The clock of the supervisor.
        secrets: The line with the secrets, the same for all.
    """

    command: list[str]
    sockets: Sequence[tuple[str, socket.socket]]
    grace: float
    clock: RunningClock = attrs.field(factory=RunningClock)
    secrets: bytes = attrs.field(repr=False, factory=lambda: _secrets())

    async def launch(self, number: int) -> Child:
        """Start a child process.

        Raises:
            OSError: If the system can't start a process.
        """
        import json

        inner_control, control = os.pipe()
        reports, inner_reports = os.pipe()
        descriptors = [inner_control, inner_reports, *(sock.fileno() for _, sock in self.sockets)]
        mark = {
            "supervisor": os.getpid(),
            "number": number,
            "sockets": [(scheme, sock.fileno()) for scheme, sock in self.sockets],
            "grace": self.grace,
            "control": inner_control,
            "reports": inner_reports,
        }
        try:
            # So short a line fits into the pipe's buffer.
            os.write(control, self.secrets)
            process = await trio.lowlevel.open_process(
                self.command,
                stdin=subprocess.DEVNULL,
                pass_fds=descriptors,
                env={**os.environ, CHILD: json.dumps(mark)},
                # Ctrl-C on a terminal goes to all processes of a group, but only the supervisor decides what it means.
                process_group=0,
            )
        except BaseException:
            os.close(control)
            os.close(reports)
            raise
        finally:
            os.close(inner_control)
            os.close(inner_reports)
        return Child(number, process, self.clock, self.grace, control, trio.lowlevel.FdStream(reports))


def _secrets() -> bytes:
    import json

    return json.dumps({"key": secrets.token_hex(32), "nonce": secrets.token_hex(32)}).encode() + b"\n"


async def first_of(*events: trio.Event) -> None:
    """Wait until one of several events is set."""
    async with background_nursery() as nursery:
        happened = trio.Event()

        async def wait(wait_for: Callable[[], Awaitable[None]]) -> None:
            await wait_for()
            happened.set()

        for event in events:
            nursery.start_soon(wait, event.wait)
        await happened.wait()
