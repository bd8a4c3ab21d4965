"""What three programs without a supervisor share behind nginx, which gives each request to the next one."""

from __future__ import annotations

import base64
import contextlib
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trio

from tests.conftest import places
from tests.round_robin import Front, round_robin
from tests.waiting import eventually
from trio_mcp import Answers, Client, McpError, ToolResult
from trio_mcp.extensions import TaskCancelled, Tasks
from trio_mcp.types import InputRequiredResult

pytestmark = pytest.mark.nginx

ROOT = Path(__file__).resolve().parents[3]
COMMAND = [sys.executable, "-W", "error", "-m", "tests.server.processes.round_robin_program"]

ANSWER = {"action": "accept", "content": {"text": "yes"}}
LISTEN = "subscriptions/listen"
DEADLINE = 60
"""Seconds. A net against a hang."""

CLIENTS = 6
COUNTS = 10


@pytest.fixture(scope="module", params=places())
def desk(request: pytest.FixtureRequest) -> Iterator[Front]:
    with round_robin(COMMAND, os.environ, place=request.param, cwd=ROOT) as front:
        yield front
    assert front.said == ""


def connected(desk: Front) -> Client:
    answers = Answers(elicitation=lambda _: {"text": "yes"})
    return Client(desk.url, mode="2026-07-28", answers=answers, extensions=[Tasks()])


def everywhere(desk: Front, *methods: str) -> bool:
    """Return whether each program has served a request of each of some methods."""
    return all(min(desk.served(method).values()) for method in methods)


async def test_no_update_of_a_users_state_is_lost(desk: Front) -> None:
    """Each client counts from one program to the next, while the others do."""
    counts: list[int] = []

    async def count() -> None:
        async with connected(desk) as client:
            for _ in range(COUNTS):
                counts.append((await client.call_tool("count")).data)

    with trio.fail_after(DEADLINE):
        async with trio.open_nursery() as nursery:
            for _ in range(CLIENTS):
                nursery.start_soon(count)
    assert sorted(counts) == list(range(1, CLIENTS * COUNTS + 1))


async def test_the_rounds_of_a_request_go_from_one_program_to_the_next(desk: Front) -> None:
    """Whatever a function has once done in one of them, the next ones know."""
    with trio.fail_after(DEADLINE):
        async with connected(desk) as client:
            *asked, finished = (await client.call_tool("interview")).data
    assert sorted(asked) == sorted(desk.pids)
    assert finished == asked[0]


async def test_a_task_is_polled_answered_and_cancelled_wherever_the_request_arrives(desk: Front) -> None:
    ran: set[int] = set()

    async def is_answered(client: Client) -> None:
        task = await Tasks.of(client).start("interview_as_task")
        for _ in desk.urls:
            assert (await task.get()).status in ("working", "input_required")
        ran.update((await task.result(list[int])).data)

    async def is_cancelled(client: Client) -> None:
        task = await Tasks.of(client).start("wait")
        await task.cancel()
        with pytest.raises(TaskCancelled):
            await task.result()

    with trio.fail_after(DEADLINE):
        async with connected(desk) as client:
            while not everywhere(desk, "tasks/get", "tasks/update", "tasks/cancel"):
                async with trio.open_nursery() as nursery:
                    for check in (is_answered, is_cancelled):
                        nursery.start_soon(check, client)
    assert ran <= set(desk.pids)


async def test_every_listener_hears_what_any_program_announces(desk: Front) -> None:
    earlier = desk.served(LISTEN)
    with trio.fail_after(DEADLINE):
        async with contextlib.AsyncExitStack() as stack:
            clients = [await stack.enter_async_context(connected(desk)) for _ in desk.urls]
            # One after the other, so each is connected to another program.
            heard = [await stack.enter_async_context(each.listen(resources=["desk://lamp"])) for each in clients]
            missing = set(desk.pids)
            while missing:
                missing.discard((await clients[0].call_tool("touch")).data)
                for events in heard:
                    await anext(events)
        await eventually(lambda: (desk.served(LISTEN) - earlier).total() == len(clients))
    assert set((desk.served(LISTEN) - earlier).values()) == {1}


async def test_two_rotations_of_the_keys_refuse_no_state(desk: Front) -> None:
    """A state is accepted by all programs until its key is deleted, while newer keys sign."""
    keys = desk.folder / "desk.keys"
    with trio.fail_after(DEADLINE):
        async with connected(desk) as client:
            first = await asked(client)
            for letter in (b"b", b"c"):
                signs_from = add_key(keys, letter)
                while time.time() < signs_from + 0.5:
                    await answered(client, first)
                    await answered(client, await asked(client))
            last = await asked(client)
            # It was the last key that has signed what was asked now, and the first one what was asked first.
            replacement = keys.with_suffix(".new")
            replacement.write_text(keys.read_text().splitlines()[-1])
            replacement.chmod(0o600)
            replacement.rename(keys)
            refused = 0
            while refused < 2 * len(desk.pids):
                await answered(client, last)
                refused += await is_refused(client, first)


def add_key(file: Path, letter: bytes) -> int:
    """Add a key that is almost a minute old; return when it signs."""
    made = int(time.time()) - 58
    with file.open("a") as keys:
        keys.write(f"{made} {base64.b64encode(letter * 32).decode()}\n")
    return made + 60


async def asked(client: Client) -> InputRequiredResult:
    found = await client.call_tool_once("ask")
    assert isinstance(found, InputRequiredResult)
    return found


async def is_refused(client: Client, question: InputRequiredResult) -> bool:
    try:
        await answered(client, question)
    except McpError as exc:
        return exc.code == -32602
    return False


async def answered(client: Client, question: InputRequiredResult) -> ToolResult[Any]:
    responses = dict.fromkeys(question.input_requests or {}, ANSWER)
    found = await client.call_tool_once("ask", input_responses=responses, request_state=question.request_state)
    assert isinstance(found, ToolResult)
    return found
