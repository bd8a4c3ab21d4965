"""The same with real processes, pipes and time, a few rows: what a kernel between the two sides changes."""

from __future__ import annotations

import subprocess
import sys

import pytest
import trio

from tests.forks import children
from tests.peer import ENVIRONMENT
from trio_mcp import Client, RequestTimeout, SessionOptions, StdioServerParameters, TransportError
from trio_mcp.session.session import MAX_FAULTS

ANSWERS_WITH_TEXT = """
import sys
for line in sys.stdin:
    print("what?", flush=True)
print("end of input", file=sys.stderr)
"""

TURNS_MAD = """
import json, sys
lines = 0
for line in sys.stdin:
    lines += 1
    message = json.loads(line)
    if message.get("method") == "initialize":
        result = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}}
        result["serverInfo"] = {"name": "x", "version": "1"}
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
    else:
        print("what?", flush=True)
print(lines, file=sys.stderr)
"""

FLOODS = "while True: print('what?')"


def target(program: str, lines: list[str], *, grace: float = 5) -> StdioServerParameters:
    return StdioServerParameters(sys.executable, ["-S", "-c", program], stderr=lines.append, shutdown_grace=grace)


QUIET = SessionOptions(on_error=lambda error: None)


async def test_a_server_that_answers_everything_with_text_is_not_answered() -> None:
    """It gets the requests of two eras, their cancellations, and nothing about what it says."""
    lines: list[str] = []
    with trio.fail_after(60), pytest.raises(TransportError, match="what it sent was not MCP: invalid JSON"):
        async with Client(target(ANSWERS_WITH_TEXT, lines), timeout=1, options=QUIET):
            pass
    assert children() == []


async def test_a_server_that_turns_mad_costs_a_timeout() -> None:
    """It gets initialize, its confirmation, a call and the call's cancellation."""
    lines: list[str] = []
    with trio.fail_after(60):
        async with Client(target(TURNS_MAD, lines), mode="legacy", timeout=30, options=QUIET) as client:
            with pytest.raises(RequestTimeout):
                await client.call_tool("x", timeout=0.5)
    assert lines == ["4"]


async def test_a_server_that_floods_is_left() -> None:
    """Long before connecting would have to end."""
    with trio.fail_after(60), pytest.raises(TransportError, match=f"sent {MAX_FAULTS} faults in a row"):
        async with Client(target(FLOODS, [], grace=0.1), options=QUIET):
            pass


def test_a_client_that_answers_each_error_with_text_is_left() -> None:
    """The server, on its standard streams, ends with the session."""
    program = "from trio_mcp import Server; Server('x').run()"
    process = subprocess.Popen(
        [sys.executable, "-c", program],
        env=ENVIRONMENT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,
    )
    with process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        errors = 0
        try:
            process.stdin.write(b"what?\n")
            for line in process.stdout:
                errors += b"-32700" in line
                process.stdin.write(b"what?\n")
        except BrokenPipeError:
            pass
        said = process.stderr.read()
        process.wait(60)
    assert errors == MAX_FAULTS - 1
    assert b"sent 1000 faults in a row" in said
