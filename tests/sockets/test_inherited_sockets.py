"""TCP and Unix sockets that a service manager has opened (systemd's socket activation, sd_listen_fds(3))."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.peer import HANDSHAKE, ndjson

SCRIPT = """
import sys, trio
from trio_mcp import Server
async def main():
    server = Server("inherited")
    async with trio.open_nursery() as nursery:
        serve, address = {"tcp": (server.serve_tcp, "127.0.0.1"), "unix": (server.serve_unix, "nowhere")}[sys.argv[1]]
        print(await nursery.start(serve, address), flush=True)
        await trio.to_thread.run_sync(sys.stdin.read)
        nursery.cancel_scope.cancel()
trio.run(main)
"""


def started(listening: socket.socket, kind: str) -> subprocess.Popen[str]:
    # The shell knows its process id, which `exec` keeps.
    shell = f'LISTEN_PID=$$ LISTEN_FDS=1 exec "$0" -c "$1" {kind}'
    return subprocess.Popen(
        ["/bin/sh", "-c", shell, sys.executable, SCRIPT],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        close_fds=False,
        preexec_fn=lambda: os.dup2(listening.fileno(), 3),
    )


def bound(kind: str, path: Path) -> tuple[socket.socket, str]:
    """Return a socket as a service manager opens it, and its URL."""
    if kind == "tcp":
        listening = socket.create_server(("127.0.0.1", 0))
        return listening, f"tcp://127.0.0.1:{listening.getsockname()[1]}"
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(path))
    listening.listen()
    return listening, f"unix:{path}"


@pytest.mark.parametrize("kind", ["tcp", "unix"])
def test_they_replace_the_address_and_stay_the_managers(kind: str, tmp_path: Path) -> None:
    listening, url = bound(kind, tmp_path / "socket")
    with listening, started(listening, kind) as process:
        assert process.stdout is not None
        assert process.stdout.readline().rstrip() == url
        with socket.socket(listening.family) as client:
            client.connect(listening.getsockname())
            client.sendall(ndjson(*HANDSHAKE))
            assert b'"inherited"' in client.recv(10_000)
        process.communicate("", timeout=20)
        assert process.returncode == 0
        if kind == "unix":
            assert (tmp_path / "socket").is_socket(), "the file belongs to the manager"


@pytest.mark.parametrize(("kind", "handed"), [("tcp", "unix"), ("unix", "tcp")])
def test_a_socket_of_another_kind_is_one_clear_error(kind: str, handed: str, tmp_path: Path) -> None:
    listening, _ = bound(handed, tmp_path / "socket")
    with listening, started(listening, kind) as process:
        _, said = process.communicate("", timeout=20)
    assert (
        "OSError: [Errno 22] can't listen: the service manager has handed over a socket of the wrong address family"
        in said
    )
