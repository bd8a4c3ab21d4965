"""``trio-mcp record`` as a process, before a server."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import trio

from tests.cli.running import command, environment

__all__ = ["recording"]

UNGUARDED = """
import sys
from trio_mcp.cli import main
from trio_mcp.conformance.recording.guard import RecorderGuard

RecorderGuard.check = lambda *_: None
sys.exit(main(sys.argv[1:]))
"""


@asynccontextmanager
async def recording(folder: Path, *arguments: str, guarded: bool = True) -> AsyncIterator[str]:
    """Record into ``said.jsonl`` of a folder, and yield the URL that the command tells; without its guard if asked."""
    program = command() if guarded else [sys.executable, "-c", UNGUARDED]
    process = await trio.lowlevel.open_process(
        [*program, "record", str(folder / "said.jsonl"), *arguments], stderr=subprocess.PIPE, env=environment()
    )
    assert process.stderr is not None
    said = b""
    try:
        with trio.fail_after(60):
            while not (found := re.search(rb"connect the client to (\S+), and", said)):
                part = await process.stderr.receive_some()
                assert part, said
                said += part
        yield found[1].decode()
    finally:
        with trio.CancelScope(shield=True):
            process.send_signal(signal.SIGINT)
            await process.wait()
            await process.stderr.aclose()
