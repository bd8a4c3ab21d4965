"""A server with several processes: ``python program.py '{"processes": 2, …}'``, whose words are arguments of `run`.

Beside them, ``constants`` changes time limits of the library, and with ``crash`` each child ends before it serves.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import trio
from hypercorn.config import Config

from trio_mcp import Server
from trio_mcp.server.processes import child, children, slots, supervisor
from trio_mcp.server.processes.child import inherited, report_busy
from trio_mcp.server.signals import CHILD

ROOMS: dict[str, Any] = {"child": child, "children": children, "slots": slots, "supervisor": supervisor}
LOOK = f"import os; print({CHILD!r} in os.environ, len(os.listdir('/proc/self/fd')))"
server = Server("desk")


@server.tool
async def pid() -> int:
    return os.getpid()


@server.tool
async def legacy() -> str:
    """What this process has from its supervisor, without telling the secrets."""
    mine = inherited()
    assert mine is not None
    return f"{mine.number} {hashlib.sha256(mine.key + mine.nonce).hexdigest()} {len(mine.key)} {len(mine.nonce)}"


@server.tool
async def look() -> str:
    """Whether a process started by a handler has the mark, and how many descriptors it has."""
    done = await trio.run_process([sys.executable, "-c", LOOK], capture_stdout=True, close_fds=False)
    return bytes(done.stdout).decode().strip()


@server.tool
async def orphan() -> None:
    """Leave a process behind that ends a moment later."""
    await trio.run_process(["/bin/sh", "-c", "sleep 0.5 &"])


@server.tool
async def sleep(seconds: float, file: str) -> int:
    Path(file).touch()  # noqa: ASYNC240 - milliseconds
    await trio.sleep(seconds)
    return os.getpid()


@server.tool
async def block(seconds: float, file: str) -> None:
    """Block the event loop."""
    Path(file).touch()  # noqa: ASYNC240 - milliseconds
    time.sleep(seconds)  # noqa: ASYNC251 - on purpose


@server.tool
async def deafen() -> int:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    return os.getpid()


@server.tool
async def busy() -> int:
    report_busy(1.0)
    return os.getpid()


def main() -> None:
    settings = json.loads(sys.argv[1])
    for name, value in settings.pop("constants", {}).items():
        room, constant = name.split(".")
        setattr(ROOMS[room], constant, value)
    if settings.pop("crash", False) and CHILD in os.environ:
        sys.exit(7)
    if "config" in settings:
        config, given = Config(), settings["config"]
        for name, value in given.items():
            setattr(config, name, value)
        settings["config"] = config
    server.run(settings.pop("transport", "http"), **settings)


if __name__ == "__main__":
    main()
