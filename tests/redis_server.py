"""A real engine for `ValkeyStores`: Debian's redis-server, which listens on a Unix socket, and on ports if asked to."""

from __future__ import annotations

import contextlib
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import attrs

__all__ = ["RedisServer", "free_port", "redis_server"]

NET = 30.0
"""Seconds after which an engine that does not start fails a test."""


def free_port() -> int:
    """Return a port that no program uses at the moment."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


@attrs.define(eq=False)
class RedisServer:
    """A running engine.

    Attributes:
        folder: Its folder, with its socket, its log and its data.
        options: The options of its command line.
        url: The URL of its Unix socket.
        process: Its process.
    """

    folder: Path
    options: tuple[str, ...]
    url: str = attrs.field(init=False, default=attrs.Factory(lambda self: f"unix://{self.folder}/socket", True))
    process: subprocess.Popen[bytes] = attrs.field(init=False)

    def start(self) -> None:
        """Start it, and wait until it listens."""
        folder = str(self.folder)
        fixed = ("--port", "0", "--unixsocket", f"{folder}/socket", "--dir", folder, "--logfile", f"{folder}/log")
        command = ["redis-server", *fixed, "--save", "", *self.options]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        end = time.monotonic() + NET
        while not self._listens():
            if self.process.poll() is not None or time.monotonic() > end:
                self.process.kill()
                raise RuntimeError((self.folder / "log").read_text())
            time.sleep(0.01)

    def _listens(self) -> bool:
        with socket.socket(socket.AF_UNIX) as sock:
            with contextlib.suppress(FileNotFoundError, ConnectionRefusedError):
                sock.connect(f"{self.folder}/socket")
                return True
            return False

    def kill(self) -> None:
        """Kill it, as when its machine breaks down, and wait for its end."""
        self.process.kill()
        self.process.wait()

    @contextlib.contextmanager
    def stopped(self) -> Iterator[None]:
        """Stop it within the block: it answers nothing, and its connections stay."""
        self.process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.process.send_signal(signal.SIGCONT)

    def ask(self, *words: str) -> str:
        """Return the answer to a command, over a connection of its own."""
        command = ["redis-cli", "-s", f"{self.folder}/socket", *words]
        found = subprocess.run(command, capture_output=True, check=True, timeout=NET)
        return found.stdout.decode(errors="backslashreplace").strip()

    def keys(self, pattern: str = "*") -> set[str]:
        """Return the names of keys."""
        return set(self.ask("--scan", "--pattern", pattern).splitlines())


@contextlib.contextmanager
def redis_server(*options: str) -> Iterator[RedisServer]:
    """Run an engine with a folder of its own until the end of the block."""
    with tempfile.TemporaryDirectory(prefix="redis") as folder:
        server = RedisServer(Path(folder), options)
        server.start()
        try:
            yield server
        finally:
            server.kill()
