"""Starts child processes, reads their output, and ends their whole process groups.

No process that the child has started survives `ChildProcess.end`, unless it has moved to another process group.
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import subprocess
from collections import deque
from collections.abc import Iterator
from pathlib import Path

import trio

from trio_mcp._log import logger
from trio_mcp._nursery import closing
from trio_mcp.convert import call_back
from trio_mcp.errors import TransportError
from trio_mcp.lines import PipeReader
from trio_mcp.stdio.parameters import StderrSink, StdioServerParameters, default_environment
from trio_mcp.stdio.probing import PROBING, HeldOutput

__all__ = ["ChildProcess", "StderrCopier", "start_process"]

TERM_MOMENT = 0.2
"""Seconds between SIGTERM and SIGKILL on cancellation. An arbitrary choice, enough for a signal handler to run."""

KILL_MOMENT = 3.0
"""Seconds to wait for a killed process. An arbitrary choice: a process ends at once unless it runs as another user or
is stuck in the kernel."""

LAST_WORDS = 1024 * 1024
"""The maximum number of bytes to read from a pipe after the process has exited: the largest size that a pipe can have
without privileges (pipe(7))."""

LONGEST_LINE = 8192
"""The number of bytes after which a line is split: an arbitrary choice, to bound the memory for output without
newlines."""

TAIL = 20
"""How many of the last lines are kept for the error message. An arbitrary choice, enough for a short traceback."""

PENDING = 256
"""How many lines may wait for a slow sink before the child has to wait, too. An arbitrary choice."""


async def start_process(params: StdioServerParameters) -> ChildProcess:
    """Start the process as the leader of a new process group, with pipes for all three standard streams.

    A cancellation takes effect before the start or not at all, so it never leaves a process running unnoticed.

    Raises:
        TransportError: If the process can't be started; the message says why, and what to check.
    """
    environment = default_environment() | dict(params.env)
    try:
        process = await trio.lowlevel.open_process(
            [params.command, *params.args],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
            cwd=params.cwd,
            # The child gets a process group of its own, so its signals also reach its descendants, and a Ctrl-C in our
            # terminal reaches none of them.
            process_group=0,
        )
    except (OSError, ValueError) as exc:
        raise TransportError(
            f"can't start {params.command!r}: {_reason(exc, params, environment.get('PATH'))}"
        ) from exc
    return ChildProcess(process)


def _reason(exc: Exception, params: StdioServerParameters, path: str | None) -> str:
    """Explain why the process could not be started: one errno can have several causes."""
    # ENOENT may be about the directory, the program, or the interpreter that a script names; so may EACCES. These
    # checks only determine the text, so it does no harm if the file system has changed in the meantime.
    command, cwd = params.command, params.cwd
    # A wrong `cwd` causes the same ENOENT, with the name of the program.
    if cwd is not None and not Path(cwd).is_dir():
        return f"cwd={str(cwd)!r} {'is not a directory' if Path(cwd).exists() else 'does not exist'}"
    file = Path(cwd or ".", command)
    if isinstance(exc, FileNotFoundError):
        if file.exists() if "/" in command else shutil.which(command, path=path):
            return "the interpreter that its first line (#!) names does not exist"
        if "/" in command:
            return "no such file"
        words = command.split()
        if len(words) > 1:
            return f"the arguments belong in a list: write StdioServerParameters({words[0]!r}, {words[1:]!r})"
        return "no such command in PATH; check the spelling, or give its full path"
    if isinstance(exc, PermissionError) and "/" in command:
        if file.is_dir():
            return "it is a directory"
        if file.exists() and not os.access(file, os.X_OK):
            return "it is not executable"
    return str(exc)


class ChildProcess:
    """A running child process and its process group.

    Attributes:
        stdin: A stream to the child's standard input.
        stdout: A stream from the child's standard output.
        stderr: A stream from the child's standard error.
        pid: The process id, which is also the id of the process group.
        returncode: The exit status, negative for a signal; None until a call to `wait` has returned.
    """

    def __init__(self, process: trio.Process) -> None:
        assert isinstance(process.stdin, trio.lowlevel.FdStream)
        assert isinstance(process.stdout, trio.lowlevel.FdStream)
        assert isinstance(process.stderr, trio.lowlevel.FdStream)
        self.stdin = process.stdin
        self.stdout = ChildOutput(PipeReader(process.stdout))
        self.stderr = ChildOutput(PipeReader(process.stderr))
        self.pid = process.pid
        self.returncode: int | None = None
        self._process = process
        # Once this is true, no more signals are sent, because the group's id may have been reused.
        self._group_gone = False
        # SIGTERM is sent only once, although several tasks may call `end`.
        self._terminated = False

    async def wait(self) -> int:
        """Wait for the process to exit, regardless of the rest of its group."""
        returncode = await self._process.wait()
        if self.returncode is None:
            self.returncode = returncode
            # The group is looked for in the same step in which its leader was reaped: once the whole group is gone, its
            # id may be given to another group, which must not get our signals.
            self._signal_group(0)
            self.stdout.end()
            self.stderr.end()
        return returncode

    async def end(self, grace: float) -> None:
        """Wait for the process to exit, and end whatever is left of it and its process group.

        Up to ``grace`` seconds pass before SIGTERM, and again before SIGKILL. On cancellation, SIGTERM is sent at once,
        and SIGKILL a moment later. After SIGKILL, this method waits for at most `KILL_MOMENT`.
        """
        try:
            with trio.move_on_after(grace):
                await self.wait()
            if self._terminate():
                with trio.move_on_after(grace):
                    await self._wait_for_group()
        except BaseException:
            self._terminate()
            # This wait is shielded, because a cancelled scope would end it at once, without any time for the process.
            with trio.move_on_after(min(grace, TERM_MOMENT), shield=True):
                await self._wait_for_group()
            raise
        finally:
            # SIGTERM can be ignored, and descendants may have ignored everything until now, so SIGKILL ends whatever is
            # left.
            if self._signal_group(signal.SIGKILL):
                with trio.move_on_after(KILL_MOMENT, shield=True):
                    await self.wait()
                if self.returncode is None:
                    logger.error("process %d could not be killed; it may still be running", self.pid)

    async def _wait_for_group(self) -> None:
        await self.wait()
        self._reap_adopted()
        while self._signal_group(0):
            # The group is polled, because its orphans are not our children, for which we could wait.
            await trio.sleep(0.01)
            self._reap_adopted()

    def _reap_adopted(self) -> None:
        """Reap the orphaned processes of the group that have become our children."""
        # Orphans become our children if this process is the first one in a container, or a subreaper (prctl(2)). As
        # zombies, they would keep the group in existence.
        try:
            while not self._group_gone and os.waitpid(-self.pid, os.WNOHANG) != (0, 0):
                pass
        except ChildProcessError:
            pass

    def _terminate(self) -> bool:
        if not self._terminated:
            self._terminated = True
            return self._signal_group(signal.SIGTERM)
        return not self._group_gone

    def _signal_group(self, number: int) -> bool:
        """Send a signal to the group, and return whether the group still exists; the number 0 only checks (kill(2))."""
        if self._group_gone:
            return False
        try:
            os.killpg(self.pid, number)
        except ProcessLookupError:
            # If the process has not been reaped, it has moved to another group, so the signal goes to the process
            # alone. Its own id can't belong to another process yet.
            if self.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self.pid, number)
                return True
            self._group_gone = True
            return False
        except PermissionError:
            pass  # the process now runs as another user; or, on macOS, only zombies are left
        return True


class ChildOutput(trio.abc.ReceiveStream):
    """An output stream of a child. It ends when the child exits, even if descendants keep the pipe open forever."""

    def __init__(self, stream: PipeReader) -> None:
        self._stream = stream
        self._waiting = trio.CancelScope()
        self._ended = False
        self._left = LAST_WORDS

    def end(self) -> None:
        """Record that the child has exited: from now on, only what is already in the pipe is read."""
        self._ended = True
        self._waiting.cancel()

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        # `end` cancels a wait that is under way; then `receive_some` goes on to read what is left in the pipe.
        if not self._ended:
            with trio.CancelScope() as self._waiting:
                return await self._stream.receive_some(max_bytes)
        await trio.lowlevel.checkpoint()
        # A descendant that keeps writing must not keep us reading.
        if self._left <= 0:
            return b""
        data = self.receive_nowait(max_bytes)
        self._left -= len(data)
        return data

    def receive_nowait(self, max_bytes: int | None = None) -> bytes:
        """Return the bytes that are in the pipe now, if any."""
        try:
            return self._stream.receive_nowait(max_bytes)
        except trio.WouldBlock:
            return b""

    async def aclose(self) -> None:
        await self._stream.aclose()


# --- standard error -------------------------------------------------------------------------------------------------


class StderrCopier:
    """Copies a child's standard error to a sink until the stream ends, in two tasks: one reads, and one delivers.

    Attributes:
        tail: The last lines that were read, whether or not the sink has taken them yet.
        ended: Set once the sink has taken everything.
    """

    def __init__(self, stream: ChildOutput, sink: StderrSink, label: str | None = None) -> None:
        self.tail: deque[str] = deque(maxlen=TAIL)
        self.ended = trio.Event()
        self._stream = stream
        self._sink = sink
        self._before = b"" if label is None else f"[{label}] ".encode()
        # This channel connects the two tasks, so that the pipe is read, and the tail kept, even while the sink is slow.
        self._pending, self._taken = trio.open_memory_channel[bytes | HeldOutput](PENDING)
        self._rest = b""
        self._passing_on = False
        # The lines that are held back until the client knows the server's era.
        self._held = HeldOutput(self._catch_up)
        probing = PROBING.get()
        if sink == "discard" or probing is None or not probing.hold(self._held):
            self._held.release()
        # The copier has its own limiter, because threads that wait for a slow terminal must not use up Trio's default
        # one.
        self._limiter = trio.CapacityLimiter(1)

    async def read(self) -> None:
        """Read lines until the stream ends, then close it: the first of the two tasks."""
        with self._pending:
            async with closing(self._stream.aclose):
                while chunk := await self._receive():
                    await self._keep(self._cut(chunk))
                if self._rest:
                    await self._keep([self._rest])
                # If the server ends now, all of its lines are shown, even those about the probe.
                self._held.release()

    def _cut(self, chunk: bytes | bytearray) -> list[bytes]:
        """Return the lines that this chunk completes, with long ones split into pieces."""
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        lines = [piece for line in lines for piece in _pieces(line)]
        # A line without an end is delivered in pieces as it arrives.
        if len(self._rest) > LONGEST_LINE:
            *begun, self._rest = _pieces(self._rest)
            lines += begun
        return lines

    def _catch_up(self) -> None:
        """Read and hold back what the child has printed so far, as long as lines may be held back."""
        # If the client is cancelled while it waits for the response, the stream may already be closed.
        with contextlib.suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            # Each iteration adds to the held lines, which are bounded, so the loop ends however much the child prints.
            while self._can_hold() and (chunk := self._stream.receive_nowait(LONGEST_LINE)):
                lines = self._cut(chunk)
                self.tail.extend(map(_text, lines))
                self._held.add(lines)

    def _can_hold(self) -> bool:
        """Return whether lines may be held back now; held lines are shown later, in order, or dropped."""
        if not self._held.begun:
            # Holding does not begin while lines that were read together are still being passed on: a slow sink gets
            # every one of them.
            if self._passing_on:
                return False
            try:
                self._pending.send_nowait(self._held)
            except (trio.WouldBlock, trio.ClosedResourceError):
                return False
            self._held.begun = True
        return not self._held.over.is_set()

    async def _receive(self) -> bytes | bytearray:
        try:
            return await self._stream.receive_some(LONGEST_LINE)
        except trio.BrokenResourceError:
            return b""  # a broken pipe is treated like its end

    async def _keep(self, lines: list[bytes]) -> None:
        # The tail is updated before the sink gets the lines: the error message needs the last lines even if the sink is
        # slow.
        self.tail.extend(map(_text, lines))
        if self._held.wants(lines) and self._can_hold():
            self._held.add(lines)
        elif self._sink != "discard":
            self._passing_on = True
            for line in lines:
                await self._pending.send(line)
            self._passing_on = False

    async def deliver(self) -> None:
        """Hand the lines to the sink, however long it takes: the second of the two tasks."""
        async for first in self._taken:
            lines: list[bytes] = []
            # All waiting lines are shown with one write; a callback gets them one by one.
            for each in (first, *(_waiting(self._taken) if self._sink == "inherit" else ())):
                if isinstance(each, HeldOutput):
                    await self._show(lines)
                    await each.over.wait()
                    lines, each.lines = each.lines, []
                else:
                    lines.append(each)
            await self._show(lines)
        self.ended.set()

    async def _show(self, lines: list[bytes]) -> None:
        if self._sink == "inherit" and lines:
            # On cancellation the thread is abandoned, because it may never return.
            shown = b"".join(self._before + each + b"\n" for each in lines)
            await trio.to_thread.run_sync(_write_stderr, shown, abandon_on_cancel=True, limiter=self._limiter)
        elif self._sink != "inherit":
            for line in lines:
                await self._call(_text(line))

    async def _call(self, line: str) -> None:
        assert not isinstance(self._sink, str)
        try:
            await call_back(self._sink, line)
        except Exception:
            logger.exception("the callback for standard error failed; it will still be called with the next line")


def _text(line: bytes) -> str:
    return line.decode("utf-8", "replace").removesuffix("\r")


def _pieces(line: bytes) -> Iterator[bytes]:
    """Split a line into pieces of bounded length, none of which begins inside a UTF-8 character."""
    while len(line) > LONGEST_LINE:
        # Go back over continuation bytes (10xxxxxx); a character has three at most (RFC 3629, section 3).
        cut = LONGEST_LINE
        while cut > LONGEST_LINE - 3 and line[cut] & 0xC0 == 0x80:
            cut -= 1
        yield line[:cut]
        line = line[cut:]
    yield line


def _waiting(taken: trio.MemoryReceiveChannel[bytes | HeldOutput]) -> Iterator[bytes | HeldOutput]:
    try:
        while True:
            yield taken.receive_nowait()
    except (trio.WouldBlock, trio.EndOfChannel):
        pass


def _write_stderr(data: bytes) -> None:
    """Write to our standard error, in a thread: a slow reader of it must not block the event loop."""
    try:
        while data:
            try:
                data = data[os.write(2, data) :]
            except BlockingIOError:  # another process that shares the file description has made it non-blocking
                poll = select.poll()
                poll.register(2, select.POLLOUT)
                poll.poll()
    except OSError:
        pass  # our standard error is closed, so no one could see the lines
