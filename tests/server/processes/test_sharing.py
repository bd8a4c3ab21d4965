"""What several processes of a real program share, in a file or an engine: rounds of a request, changes, and states."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import trio

from tests.conftest import places
from tests.redis_server import redis_server
from tests.server.processes.running import FAST, running
from tests.waiting import eventually
from trio_mcp import Client, TrioMcpError
from trio_mcp.stores import SqliteStores
from trio_mcp.types import InputRequiredResult

PROGRAM = Path(__file__).with_name("sharing_program.py")

ASKS: dict[str, Any] = {"mode": "2026-07-28", "capabilities": {"elicitation": {}}}


def sharing(folder: Path, *, constants: dict[str, Any] | None = None, **words: Any) -> Any:
    settings = {"stores": str(folder / "desk.db"), "port": 0, "processes": 3, "stateless": True, **words}
    settings["constants"] = {**FAST, **(constants or {})}
    return running(command=[sys.executable, str(PROGRAM), json.dumps(settings)])


@pytest.fixture(params=places())
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Where the processes keep what they share."""
    if request.param == "file":
        yield str(tmp_path / "desk.db")
        return
    with redis_server() as engine:
        yield engine.url


async def test_what_one_process_begins_another_one_goes_on_with(tmp_path: Path, place: str) -> None:
    async with sharing(tmp_path, stores=place) as desk:
        await desk.served_by(*desk.pids())
        # The answer to a question may reach another process: they have a key from the supervisor.
        pids = [0, 0]
        while pids[0] == pids[1]:
            async with Client(desk.url, **ASKS) as one:
                asked = await one.call_tool_once("ask")
            assert isinstance(asked, InputRequiredResult)
            (key,) = asked.input_requests or {}
            responses = {key: {"action": "accept", "content": {"text": "yes"}}}
            async with Client(desk.url, **ASKS) as two:
                answer = await two.call_tool_once("ask", input_responses=responses, request_state=asked.request_state)
            assert not isinstance(answer, InputRequiredResult)
            pids = answer.data
        # No update of a user's state is lost, whichever processes make it.
        counts: list[int] = []

        async def count() -> None:
            counts.append(await desk.call("count"))

        async with trio.open_nursery() as nursery:
            for _ in range(12):
                nursery.start_soon(count)
        assert sorted(counts) == list(range(1, 13))
        # The listener hears of the changes that any of the processes announces.
        heard: list[Any] = []
        async with desk.client() as client, trio.open_nursery() as nursery:
            await nursery.start(_listen, client, heard)
            missing = set(desk.pids())
            while missing:
                before = len(heard)
                missing.discard(await desk.call("touch"))
                await eventually(lambda before=before: len(heard) > before)
            nursery.cancel_scope.cancel()


def _a_supervisor_has_started_a_process() -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        supervisors = [each for each in psutil.Process().children() if str(PROGRAM) in each.cmdline()]
        return any(each.children() for each in supervisors)
    return False


async def _listen(client: Client, heard: list[Any], task_status: Any) -> None:
    async with client.listen(resources=["desk://lamp"]) as events:
        task_status.started()
        async for event in events:
            heard.append(event)


async def test_a_file_that_is_locked_at_the_start_is_waited_for(tmp_path: Path) -> None:
    """It is not unfit: the lock is held for moments, so the processes try again, as often as any that can't serve."""
    async with SqliteStores(tmp_path / "desk.db"):
        pass
    with contextlib.closing(sqlite3.connect(tmp_path / "desk.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")

        async def let_go() -> None:
            await eventually(_a_supervisor_has_started_a_process)
            other.execute("ROLLBACK")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(let_go)
            async with sharing(tmp_path, timeout=0.7) as desk:
                assert desk.url, desk.text
                assert await desk.call("count") == 1


@pytest.mark.again
async def test_a_process_that_was_stopped_in_a_transaction_is_killed_and_the_others_go_on(tmp_path: Path) -> None:
    """Others report that the file is locked, so the silent one is not waited for as long as others."""
    constants = {"supervisor.LEASE": 1.0, "supervisor.SILENCE": 100.0}
    async with sharing(tmp_path, constants=constants, timeout=0.5) as desk:
        pids = desk.pids()
        with trio.move_on_after(2):
            await desk.call("hold")

        async def killed() -> bool:
            with trio.move_on_after(2), contextlib.suppress(TrioMcpError):
                await desk.call("count")  # which fails while the file is locked, and is then reported
            return bool(pids - desk.pids())

        await eventually(killed)
        await desk.until_said("was silent for 1 s while others could not write to the stores")
        counted = await desk.call("count")
        assert await desk.call("count") == counted + 1
