"""Three programs on ports of their own behind an nginx that gives each request to the next one.

They share a file, or an engine.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

import attrs

from tests.listening import port_of
from tests.nginx import advised, folder_of_nginx, nginx
from tests.redis_server import redis_server
from trio_mcp import InputOptions
from trio_mcp.stores import KeyRing

__all__ = ["SHARED", "Front", "Place", "round_robin", "shared"]

SHARED = "TRIO_MCP_TESTS_SHARED"
"""The variable that names the folder of the keys, and of the file if there is no engine."""
ENGINE = "TRIO_MCP_TESTS_ENGINE"
"""The variable that has the URL of the engine."""

Place = Literal["file", "engine"]
"""Where the programs keep what they share. Tests that use an engine need the marker `redis`."""

PORTS = (8001, 8002, 8003)
"""Those of the programs in the docs."""

DEADLINE = 60
"""Seconds. A net against a hang."""

LOG = """
log_format upstreams '$upstream_addr|$http_mcp_method';
access_log {path} upstreams;
"""


def shared() -> dict[str, Any]:
    """Return the arguments of `Server` that a program needs as one of several; none if it is alone."""
    if not (folder := os.environ.get(SHARED)):
        return {}
    stores = os.environ.get(ENGINE) or f"{folder}/desk.db"
    return {"stores": stores, "input": InputOptions(key=KeyRing.file(f"{folder}/desk.keys"))}


@attrs.define
class Front:
    """An nginx before three programs.

    Attributes:
        url: Where nginx serves the programs.
        urls: Where each program serves.
        pids: The process of each program.
        folder: What the programs share: ``desk.keys``, ``desk.db`` without an engine, and what a test puts there.
        said: What the programs have written to standard error, once they have ended.
    """

    url: str
    urls: list[str]
    pids: list[int]
    folder: Path
    _log: Path
    said: str = ""

    def served(self, method: str | None = None) -> Counter[str]:
        """Return how many requests each program has got and nginx has passed the whole response of.

        Args:
            method: Only of this method, which the header ``Mcp-Method`` names.
        """
        counted: Counter[str] = Counter()
        for line in self._log.read_text().splitlines():
            addresses, named = line.split("|")
            if method in (None, named):
                counted.update(addresses.split(", "))
        return Counter({url: counted[urlsplit(url).netloc] for url in self.urls})


@contextlib.contextmanager
def round_robin(
    command: Sequence[str], environment: Mapping[str, str], *, place: Place = "file", cwd: Path | None = None
) -> Iterator[Front]:
    """Run three programs behind nginx, as docs/how-to/processes.md advises, until the end of the block.

    Each of them must have got requests, exit cleanly when told to, and nginx must have nothing to complain about.

    Args:
        command: The program. It creates its `Server` with `shared`, serves HTTP on a port of its own, and writes its
            URL at the end of the first line on standard error.
        environment: The environment of the programs.
        place: Where they keep what they share. An engine must have got keys of theirs.
        cwd: The folder in which they start.
    """
    with (
        tempfile.TemporaryDirectory() as name,
        folder_of_nginx() as folder,
        socket.create_server(("127.0.0.1", 0)) as listening,
        contextlib.ExitStack() as programs,
    ):
        KeyRing.add(f"{name}/desk.keys")
        marked = {**environment, SHARED: name}
        if place == "engine":
            engine = programs.enter_context(redis_server())
            marked[ENGINE] = engine.url
        processes = [programs.enter_context(_program(command, env=marked, cwd=cwd)) for _ in PORTS]
        urls = [_first_line(process).split()[-1] for process in processes]
        port = port_of(listening)
        changes = {f"127.0.0.1:{old}": urlsplit(url).netloc for old, url in zip(PORTS, urls, strict=True)}
        changes["listen 80;"] = f"listen 127.0.0.1:{port};"
        log = folder / "access.log"
        front = Front(f"http://127.0.0.1:{port}/mcp", urls, [each.pid for each in processes], Path(name), log)
        with nginx(folder, LOG.format(path=log) + advised("processes", changes), [listening]):
            yield front
        served = front.served()
        assert len(+served) == min(served.total(), len(PORTS)) > 0, served
        for process in processes:
            process.terminate()
        front.said = "".join(process.communicate(timeout=DEADLINE)[1] for process in processes)
        assert [process.returncode for process in processes] == [0] * len(PORTS), front.said
        if place == "engine":
            assert engine.keys("*:about")


@contextlib.contextmanager
def _program(command: Sequence[str], **options: Any) -> Iterator[subprocess.Popen[str]]:
    """Run a program, which is killed at the end of the block if it is still there."""
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, **options)
    with process:
        try:
            yield process
        finally:
            process.kill()


def _first_line(process: subprocess.Popen[str]) -> str:
    assert process.stderr is not None
    line = process.stderr.readline()
    assert "http" in line, line + process.stderr.read()
    return line
