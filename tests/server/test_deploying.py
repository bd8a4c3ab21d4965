"""The page about deploying, with the real things: an image's commands, hypercorn, frameworks, systemd's sockets."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import httpx
import pytest
import trio

from tests.docs.pages import ROOT, blocks_of
from trio_mcp import Client

pytestmark = pytest.mark.again

PAGE = ROOT / "docs" / "how-to" / "deployment.md"
FRAMEWORKS = Path(__file__).with_name("frameworks.txt")
BLOCKS = list(blocks_of(PAGE))

MOUNTED = {
    "with_starlette": ("/mcp", "/mcp"),
    "with_fastapi": ("/mcp", "/mcp"),
    "with_quart": ("/mcp", "/mcp/ws"),
}
"""Where each of them has its endpoint, and its WebSockets."""


def block(first_line: str) -> str:
    (found,) = (each.text for each in BLOCKS if each.text.startswith(f"{first_line}\n"))
    return found


def instructions(name: str) -> list[str]:
    """Return what the Containerfile gives to an instruction."""
    return re.findall(rf"^(?:HEALTHCHECK )?{name} (.*)$", block("# Containerfile"), re.MULTILINE)


@contextlib.asynccontextmanager
async def started(command: Sequence[str], folder: Path, program: Path) -> AsyncIterator[int]:
    """Start a command on a socket at descriptor 3, as systemd does it, and yield the port; it must end well."""
    start = 'exec 3<&0 </dev/null; LISTEN_PID=$$ LISTEN_FDS=1 exec "$0" "$@"'
    with socket.create_server(("127.0.0.1", 0)) as listening:
        # Clients wait in its backlog until the server has started.
        process = await trio.lowlevel.open_process(
            ["/bin/sh", "-c", start, *command],
            cwd=folder,
            env={"PATH": f"{program}{os.pathsep}/usr/bin:/bin"},
            stdin=listening,
            stderr=subprocess.PIPE,
        )
        port: int = listening.getsockname()[1]
    said = bytearray()

    async def read() -> None:
        assert process.stderr is not None
        async for chunk in process.stderr:
            said.extend(chunk)

    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(read)
            yield port
            process.send_signal(signal.SIGTERM)
    finally:
        with trio.CancelScope(shield=True):
            if process.poll() is None:
                process.terminate()
            await process.wait()
    assert (process.returncode, b"Traceback" in said) == (0, False), said.decode()


async def is_served(port: int, http: str, websocket: str) -> None:
    for url in (f"http://127.0.0.1:{port}{http}", f"ws://127.0.0.1:{port}{websocket}"):
        for mode in ("2025-11-25", "2026-07-28"):
            heard: list[float] = []
            async with Client(url, mode=mode) as client:
                called = await client.call_tool(
                    "countdown", {"start": 3}, on_progress=lambda progress, heard=heard: heard.append(progress.progress)
                )
            assert (called.data, heard) == ("lift-off", [1, 2, 3])


async def is_mounted(module: str, folder: Path, program: Path) -> None:
    command = shlex.split(f"hypercorn -k trio --bind fd://3 {module}:app")
    async with started(command, folder, program) as port:
        await is_served(port, *MOUNTED[module])
        async with httpx.AsyncClient() as http:
            assert "home" in (await http.get(f"http://127.0.0.1:{port}/")).text


def install(environment: Path, *packages: str) -> None:
    """Install packages into an environment, and make that first if it does not exist."""
    if not environment.exists():
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
    pip = [sys.executable, "-m", "pip", "--python", str(environment), "--disable-pip-version-check", "install", "-q"]
    done = subprocess.run([*pip, *packages], cwd=environment.parent, capture_output=True, text=True, timeout=300)
    assert not done.returncode, f"this test needs a registry of Python packages\n{done.stderr}"


async def test_what_the_page_says(tmp_path: Path) -> None:
    """One test, since all of it runs in one environment, which takes the most time."""
    for name in (each.file_name for each in BLOCKS):
        if name is not None:
            (tmp_path / name).write_text(block(f"# {name}"))
    environment = tmp_path / "environment"
    programs = environment / "bin"

    # The image: its commands, but with the package of this checkout, and with pip's cache, which only costs space.
    (tmp_path / "requirements.txt").write_text(f"{ROOT}\n")
    (run,) = instructions("RUN")
    assert run.startswith("pip install ")
    install(environment, *run.removeprefix("pip install ").replace("--no-cache-dir ", "").split())
    assert set(instructions("COPY")) == {"requirements.txt .", "calculator.py ."}
    check, serve = map(json.loads, instructions("CMD"))
    with trio.fail_after(60):
        async with started([part.replace("0.0.0.0:8000", "fd://3") for part in serve], tmp_path, programs) as port:
            await is_served(port, "/mcp", "/mcp")
            health = [part.replace("8000", str(port)) for part in check]
            assert not (await trio.run_process([programs / health[0], *health[1:]])).returncode

    install(environment, "-r", str(FRAMEWORKS))
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            for module in MOUNTED:
                nursery.start_soon(is_mounted, module, tmp_path, programs)

    # systemd: the services of the page, on a socket.
    unit = block("# /etc/systemd/system/calculator.service")
    (command,) = re.findall(r"^ExecStart=(.*)$", unit, re.MULTILINE)
    (other,) = re.findall(r"`ExecStart=(.*?)`", PAGE.read_text())
    for each in (command, other):
        parts = each.replace("/opt/calculator/.venv/bin", str(programs)).replace("/opt/calculator", str(tmp_path))
        with trio.fail_after(30):
            async with started(parts.split(), tmp_path, programs) as port, httpx.AsyncClient() as http:
                assert (await http.get(f"http://127.0.0.1:{port}/health")).json() == {"status": "ok"}


def test_systemd_accepts_the_units(tmp_path: Path) -> None:
    """Where there is systemd; its sockets are tested without it."""
    names = []
    for name in ("calculator.service", "calculator.socket"):
        unit = block(f"# /etc/systemd/system/{name}").replace("/opt/calculator/.venv/bin/python", sys.executable)
        assert "ExecStart" in unit or "ListenStream" in unit
        (tmp_path / name).write_text(unit)
        names.append(str(tmp_path / name))
    if shutil.which("systemd-analyze"):
        done = subprocess.run(["systemd-analyze", "verify", "--man=no", *names], capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, "")
