"""An engine for `ValkeyStores`: a redis-server of its own, which says what it was asked and how much it keeps."""

from __future__ import annotations

import importlib.util
import shutil
import socket
import time
from typing import TYPE_CHECKING, Self

from benchmarks.measure.processes import DEADLINE, Process

if TYPE_CHECKING:
    from pathlib import Path

PROGRAM = "redis-server"

_SENT = ("cmdstat_evalsha", "cmdstat_script|load", "cmdstat_ping", "cmdstat_publish")
"""The commands that stores send. INFO also counts those that a script calls, of which only the last is among these."""


def missing() -> str | None:
    """Return the name of what an engine and its client need and this machine lacks; None if it has everything."""
    if shutil.which(PROGRAM) is None:
        return PROGRAM
    return None if importlib.util.find_spec("glide") else "valkey-glide"


class Engine:
    """A redis-server on a Unix socket, with an append-only file that is synced every second.

    Args:
        folder: An empty folder for its socket and its file.

    Attributes:
        url: The URL for stores.
    """

    def __init__(self, folder: Path) -> None:
        self._path = str(folder / "socket")
        self.url = f"unix://{self._path}"
        listening = ("--port", "0", "--unixsocket", self._path, "--dir", str(folder), "--logfile", str(folder / "log"))
        written = ("--save", "", "--appendonly", "yes", "--appendfsync", "everysec")
        self._process = Process([PROGRAM, *listening, *written])
        self._socket = socket.socket(socket.AF_UNIX)

    def __enter__(self) -> Self:
        deadline = time.monotonic() + DEADLINE
        while True:
            try:
                self._socket.connect(self._path)
            except OSError:
                if time.monotonic() > deadline:
                    raise self._process.failure("does not listen") from None
                time.sleep(0.01)
            else:
                return self

    def __exit__(self, *exc_info: object) -> None:
        self._socket.close()
        self._process.close()

    def sent(self) -> int:
        """Return how many commands stores have sent so far, each a round trip."""
        counts = self._info("commandstats")
        return sum(int(counts.get(name, "calls=0").split(",")[0].removeprefix("calls=")) for name in _SENT)

    def memory(self) -> int:
        """Return the bytes that its data takes, without what its connections and its file wait for."""
        found = self._info("memory")
        return int(found["used_memory"]) - int(found["mem_clients_normal"]) - int(found["mem_aof_buffer"])

    def _info(self, section: str) -> dict[str, str]:
        with self._process.deadline():
            self._socket.sendall(f"INFO {section}\r\n".encode())
            size, _, text = self._read().partition(b"\r\n")
            while len(text) < int(size.removeprefix(b"$")) + 2:
                text += self._read()
        return dict(line.split(":", 1) for line in text.decode().splitlines() if ":" in line)

    def _read(self) -> bytes:
        if not (data := self._socket.recv(65536)):
            raise self._process.failure("closed a connection")
        return data
