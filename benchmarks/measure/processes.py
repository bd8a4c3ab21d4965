"""Child processes: start contenders, watch them, measure them from outside, and end them."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

ROOT = Path(__file__).resolve().parents[2]

LINUX = sys.platform == "linux"

DEADLINE = 60.0  # seconds that an exchange may take before its process is killed and the run fails


class ProcessFailed(Exception):
    """A contender's process ended, or had to be killed, before it had answered."""


def environment(root: Path = ROOT) -> dict[str, str]:
    """Return the caller's environment with the packages in `root` importable; otherwise the same for all contenders.

    Other PYTHON* settings are dropped. With PYTHONDONTWRITEBYTECODE a checkout would be compiled at every start, while
    an installed peer has its byte code at hand; and the debug modes slow contenders down unevenly.
    """
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    if "PYTHONHOME" in os.environ:
        kept["PYTHONHOME"] = os.environ["PYTHONHOME"]
    paths = [str(root), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**kept, "PYTHONPATH": os.pathsep.join(paths)}


def python(*arguments: str) -> list[str]:
    return [sys.executable, *arguments]


def cpu_time_of(pid: int) -> float:
    """Return the seconds of CPU time that a process has taken so far; Linux only."""
    # The id of a process's CPU clock, as clock_getcpuclockid(3) makes it.
    return time.clock_gettime(~pid << 3 | 2)


def allow_files(count: int) -> None:
    """Let this process, and those that it starts from now on, open this many files each.

    Raises:
        ProcessFailed: If the system does not allow it.
    """
    import resource  # not on every platform

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, count), hard))
    except ValueError:
        raise ProcessFailed(f"{count} open files are needed, and the limit is {hard}: raise it (ulimit -Hn)") from None


class Process:
    """A child process with raw pipes for stdin and stdout; its stderr is kept for error messages.

    Args:
        command: The command to run.
        root: The directory in which it runs, and from which it imports.
    """

    def __init__(self, command: Sequence[str], root: Path = ROOT) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed in close()
        self.command = list(command)
        self.started = time.perf_counter()
        self._popen = subprocess.Popen(
            self.command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            bufsize=0,
            env=environment(root),
            cwd=root,
        )
        assert self._popen.stdin is not None
        assert self._popen.stdout is not None
        self._stdin = self._popen.stdin
        self._stdin_fd = self._stdin.fileno()
        self._stdout_fd = self._popen.stdout.fileno()
        self._stdout = self._popen.stdout
        self._unread = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    @property
    def pid(self) -> int:
        return self._popen.pid

    def write(self, data: bytes) -> None:
        """Write all of `data` to the child; block while its pipe is full."""
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(self._stdin_fd, view) :]
        except BrokenPipeError:
            raise self.failure("stopped reading") from None

    def read(self, limit: int = 1 << 16) -> bytes:
        """Return the bytes at hand; block until there is at least one."""
        if self._unread:
            data, self._unread = self._unread, b""
            return data
        data = os.read(self._stdout_fd, limit)
        if not data:
            raise self.failure("closed its stdout")
        return data

    def read_line(self) -> bytes:
        """Read one line of any length; what follows it is left for the next read."""
        parts: list[bytes] = []
        while True:
            chunk = self.read(1 << 20)
            head, newline, rest = chunk.partition(b"\n")
            parts.append(head)
            if newline:
                self._unread = rest
                return b"".join(parts)

    def close_stdin(self) -> None:
        with contextlib.suppress(OSError):
            self._stdin.close()

    def send_signal(self, number: int) -> None:
        self._popen.send_signal(number)

    def wait(self) -> int:
        """Block until the child has exited, and return its exit status. This doesn't poll, so the moment is exact."""
        return self._popen.wait()

    def kill(self) -> None:
        self._popen.kill()

    @contextlib.contextmanager
    def deadline(self, seconds: float = DEADLINE) -> Iterator[threading.Event]:
        """Kill the child if the block takes longer; the event that is yielded tells whether that happened.

        A timer in a thread does this, since a timeout for each read would be a second system call on the measured path.
        """
        expired = threading.Event()

        def expire() -> None:
            expired.set()
            self.kill()

        timer = threading.Timer(seconds, expire)
        timer.daemon = True
        timer.start()
        try:
            yield expired
        finally:
            timer.cancel()

    def cpu_time(self) -> float:
        """Return the seconds of CPU time, user and system, that the child has taken so far; Linux only.

        This is the kernel's count in nanoseconds; /proc/PID/stat counts in ticks of 10 ms. It can be read until the
        child has been waited for.
        """
        return cpu_time_of(self.pid)

    def used(self) -> float:
        """Return the same wherever it can be read, and 0 elsewhere: for what is measured beside something else."""
        return self.cpu_time() if LINUX else 0.0

    def finish(self) -> float:
        """Close the child's stdin, block until it has exited, and return all the CPU time that it took.

        Raises:
            ProcessFailed: If its exit status is not 0.
        """
        self.close_stdin()
        end = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
        used = self.cpu_time()
        if end is None or end.si_code != os.CLD_EXITED or end.si_status:
            raise self.failure("failed")
        return used

    def peak_rss(self) -> float | None:
        """Return the peak resident memory so far in MiB, or None on platforms without /proc.

        This is not ``ru_maxrss``, which on Linux is inherited from the parent's image at exec.
        """
        return self._status("VmHWM:")

    def rss(self) -> float | None:
        """Return the current resident memory in MiB, or None on platforms without /proc."""
        return self._status("VmRSS:")

    def _status(self, entry: str) -> float | None:
        try:
            status = Path(f"/proc/{self.pid}/status").read_text()
        except OSError:
            return None
        return next((int(line.split()[1]) / 1024 for line in status.splitlines() if line.startswith(entry)), None)

    def failure(self, what: str) -> ProcessFailed:
        """Kill the child, and return an exception that says what it did and how its stderr ended."""
        self._popen.kill()
        code = self._popen.wait()
        self._errors.seek(0)
        tail = self._errors.read()[-2000:].decode(errors="replace").strip()
        shown = " ".join(part.removeprefix(str(ROOT) + os.sep) for part in self.command[1:])
        return ProcessFailed(f"{shown!r} {what} (exit status {code}){': ' + tail if tail else ''}")

    def close(self) -> None:
        """Close the pipes and kill the child, however busy it is."""
        self.close_stdin()
        self._popen.kill()
        self._popen.wait()
        self._stdout.close()
        self._errors.close()


def run_python(*arguments: str, root: Path = ROOT) -> str:
    """Run an interpreter to its end, in `root`, and return what it printed.

    Raises:
        ProcessFailed: If it fails; the message has the end of its stderr.
    """
    done = subprocess.run(
        python(*arguments), env=environment(root), cwd=root, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise ProcessFailed(f"python {arguments[0]} failed: {done.stderr.strip()[-2000:]}")
    return done.stdout
