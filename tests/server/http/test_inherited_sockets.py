"""Sockets that a service manager has opened (systemd's socket activation, sd_listen_fds(3))."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import httpx

from tests.server.http.runners import chosen

SCRIPT = """
import os, sys, trio
from trio_mcp import Server
async def main():
    server = Server("inherited")
    async with trio.open_nursery() as nursery:
        url = await nursery.start(lambda task_status: server.serve_http(runner=sys.argv[1], task_status=task_status))
        print(url, sorted(name for name in os.environ if name.startswith("LISTEN_")), flush=True)
        await trio.to_thread.run_sync(sys.stdin.read)
        nursery.cancel_scope.cancel()
trio.run(main)
"""


def started(listening: socket.socket, runner: str, count: str) -> subprocess.Popen[str]:
    # The shell knows its process id, which `exec` keeps.
    shell = f'LISTEN_PID=$$ LISTEN_FDS={count} exec "$0" -c "$1" {runner}'
    return subprocess.Popen(
        ["/bin/sh", "-c", shell, sys.executable, SCRIPT],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        close_fds=False,
        preexec_fn=lambda: os.dup2(listening.fileno(), 3),
    )


def test_they_replace_the_address_and_stay_the_managers(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen()
        process = started(listening, chosen.runner(), "1")
        assert process.stdout is not None
        assert process.stdout.readline().rstrip().endswith("socket/mcp []")
        with httpx.Client(transport=httpx.HTTPTransport(uds=str(path)), timeout=10) as client:
            assert client.get("http://localhost/health").json() == {"status": "ok"}
        process.communicate("", timeout=20)
        assert process.returncode == 0
        assert path.is_socket(), "the file belongs to the manager, which may start the server again"


def test_a_count_that_is_not_a_number_is_one_clear_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        process = started(listening, "h11", "many")
        _, said = process.communicate("", timeout=20)
    assert "OSError: [Errno 22] can't listen: LISTEN_FDS must be a number, got 'many'" in said
