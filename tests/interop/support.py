"""What the interop tests share: the modes, and a server's command in the form of each client."""

from __future__ import annotations

import importlib.util
import os
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import attrs
import mcp
import psutil

import trio_mcp
from tests import forks
from tests.forks import children

PEERS = Path(__file__).with_name("peers")

DEADLINE = 60
"""Seconds. A safety net around a whole test; no assertion depends on it."""

MODES = ["legacy", "auto", "2026-07-28"]

NEGOTIATED = {"legacy": "2025-11-25", "auto": "2026-07-28", "2026-07-28": "2026-07-28"}
"""What each way to connect settles on with a peer that serves both eras."""

_COMMON = {"add", "announce", "chatty", "crash", "echo", "events", "fail", "picture", "progress", "slow", "weather"}

TOOLS = {
    "official": _COMMON | {"ask", "ask_everything"},
    "official v1": _COMMON | {"ask"},
    "ours": _COMMON | {"ask", "ask_page", "interview", "parked_interview"},
}
"""The tools of peers/official_server.py, python_v1_server.py and our_server.py: `announce` says that something has
changed, `chatty` logs, `ask` and its kin ask the client."""

TRICKY = 'línea\u2028quote " backslash \\ newline \n tab \t \U0001f600 ' + "x" * 100_000

LOG_OPT_IN = {"io.modelcontextprotocol/logLevel": "debug"}
"""The stateless era sends log messages only for a request whose `_meta` asks for them."""


@attrs.frozen
class Launch:
    """The command of a stdio server, in the form each client wants."""

    command: str
    args: list[str]
    env: dict[str, str]

    def for_us(self) -> trio_mcp.StdioServerParameters:
        return trio_mcp.StdioServerParameters(command=self.command, args=self.args, env=self.env)

    def for_official(self) -> mcp.StdioServerParameters:
        return mcp.StdioServerParameters(command=self.command, args=self.args, env=self.env)


def fresh_server(script: Path = PEERS / "our_server.py") -> trio_mcp.Server:
    """Return the server of a trio_mcp script, loaded into this process with its own state."""
    spec = importlib.util.spec_from_file_location(f"interop_peer_{script.stem}", script)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    server: trio_mcp.Server = module.server
    return server


def python_peer(name: str, environment: dict[str, str]) -> Launch:
    """Return the command of a Python server in peers/, under the interpreter that runs the tests."""
    command, *arguments = forks.command(str(PEERS / f"{name}.py"), "mcp.server.mcpserver", *forks.LOADED)
    return Launch(command, arguments, environment)


# --- every process carries a mark, so that one that outlives its test is found and named -----------------------

MARK = "TRIO_MCP_INTEROP_TEST"


@contextmanager
def marked_environment() -> Iterator[dict[str, str]]:
    """Yield an environment for child processes, and on the way out fail if any process still carries its mark."""
    mark = uuid.uuid4().hex
    before = set(children())
    try:
        kept = {name: os.environ[name] for name in ("PATH", "HOME", "PYTHONPATH") if name in os.environ}
        yield {**kept, MARK: mark}
    finally:
        # A child that was never waited for is a zombie, which has no environment left to carry the mark.
        leaked = {process for process in psutil.process_iter() if _carries(process, mark)}
        leaked |= set(children()) - before
        described = [repr(process) for process in leaked]
        for process in leaked:
            process.kill()
    assert not described, "processes that outlived the test"


def _carries(process: psutil.Process, mark: str) -> bool:
    try:
        return bool(process.environ().get(MARK) == mark)
    except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
        return False
