"""What the tasks extension demands of servers (SEP-2663) and no scenario of the official suite sees.

Each test names the section. What traffic shows is also a rule of the conformance kit (`ext-task-*`).
"""

from __future__ import annotations

import string
from collections import Counter
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from tests.extensions.tasks.processes import answer, client_of, done, get, processes, shared, start
from tests.extensions.tasks.test_calls import AT_ONCE, Name, refused, server_with
from tests.peer import Peer, client_peer, settle
from trio_mcp import Context, Server
from trio_mcp.types import INTERNAL_ERROR, MISSING_REQUIRED_CLIENT_CAPABILITY

IDENTIFIER = "io.modelcontextprotocol/tasks"
DECLARED = {"extensions": {IDENTIFIER: {}}, "elicitation": {"form": {}}}
UNDECLARED = {"elicitation": {"form": {}}}


async def forever(ctx: Context) -> str:
    """Work until cancelled."""
    await trio.sleep_forever()
    return ""


async def ask_two(ctx: Context) -> str:
    """Ask two questions at once."""
    answers = await ctx.gather(ctx.elicit("Who?", Name, key="who"), ctx.elicit("Whose?", Name, key="whose"))
    return " and ".join(each.data.name for each in answers if each.data is not None)


async def created(peer: Peer, name: str = "forever") -> str:
    """Call a tool, which must become a task, and return its id."""
    result = await peer.result("tools/call", {"name": name, "arguments": {}})
    assert result["resultType"] == "task", result
    return str(result["taskId"])


# --- capability negotiation ---------------------------------------------------------------------------------------


async def test_an_earlier_declaration_does_not_count(autojump_clock: MockClock) -> None:
    """Capability Negotiation: no task without the capability on the request, regardless of prior declarations."""

    async def quick() -> str:
        return "done"

    async with client_peer(server_with(quick), capabilities=DECLARED) as peer:
        await created(peer, "quick")
        peer.capabilities = UNDECLARED
        result = await peer.result("tools/call", {"name": "quick", "arguments": {}})
        assert (result["resultType"], result["content"][0]["text"]) == ("complete", "done")


@pytest.mark.parametrize("exists", [True, False])
async def test_listening_needs_the_capability(exists: bool, autojump_clock: MockClock) -> None:
    """Task Status Notifications, Protocol Errors: -32021 that names the extension, whether the task exists or not."""
    async with client_peer(server_with(forever), capabilities=DECLARED) as peer:
        task_id = await created(peer) if exists else "none"
        peer.capabilities = UNDECLARED
        error = await peer.error("subscriptions/listen", {"notifications": {"taskIds": [task_id]}})
        assert error.code == MISSING_REQUIRED_CLIENT_CAPABILITY
        assert error.data == {"requiredCapabilities": {"extensions": {IDENTIFIER: {}}}}


# --- creation and polling -----------------------------------------------------------------------------------------


async def test_a_task_is_found_everywhere_once_the_response_is_there(autojump_clock: MockClock) -> None:
    """Task Creation: no response before the task is durably created, and visible to all who may be asked."""

    def define(server: Server) -> None:
        server.add_tool(forever, task=AT_ONCE)

    async with processes(define, shared()) as (one, two):
        for _ in range(20):
            assert (await get(two.client, await start(one.client, "forever")))["status"] == "working"


async def test_a_task_that_can_not_be_stored_is_not_created(autojump_clock: MockClock) -> None:
    """Task Creation: without a durable task there is no response that creates one."""

    def define(server: Server) -> None:
        server.add_tool(forever, task=AT_ONCE)

    async with processes(define, shared(), 1) as (one,):
        one.door.shut.add("add_task")
        assert "busy" in (await refused(one.client, "tools/call", name="forever")).message


async def test_every_outstanding_request_is_told(autojump_clock: MockClock) -> None:
    """Task Polling, Response: inputRequests contain all that is outstanding, also after some of it was answered."""
    async with client_of(server_with(ask_two)) as client:
        task_id = await start(client, "ask_two")
        state = await done(client, task_id, "input_required")
        assert set(state["inputRequests"]) == {"who", "whose"}
        await answer(client, task_id, whose={"name": "Ann"})
        state = await done(client, task_id, "input_required")
        assert set(state["inputRequests"]) == {"who"}
        await answer(client, task_id, who={"name": "Bob"})
        assert (await done(client, task_id))["result"]["content"][0]["text"] == "Bob and Ann"


# --- cancellation -------------------------------------------------------------------------------------------------


async def test_a_notification_cancels_no_task(autojump_clock: MockClock) -> None:
    """Task Cancellation: notifications/cancelled is not for tasks, so one about the call that made it does nothing."""
    async with client_peer(server_with(forever), capabilities=DECLARED) as peer:
        call = await peer.request("tools/call", {"name": "forever", "arguments": {}})
        response: Any = await peer.answer(call)
        await peer.cancel(call)
        await settle()
        state = await peer.result("tasks/get", {"taskId": response.result["taskId"]})
        assert state["status"] == "working"


# --- errors -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["tasks/get", "tasks/update", "tasks/cancel"])
async def test_a_failure_inside_the_server_is_an_internal_error(
    method: str, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Protocol Errors: -32603, which says nothing of what failed."""

    def define(server: Server) -> None:
        server.add_tool(forever, task=AT_ONCE)

    async with processes(define, shared(), 1) as (one,):
        task_id = await start(one.client, "forever")

        async def broken(*arguments: Any) -> None:
            await trio.lowlevel.checkpoint()
            raise LookupError("a secret detail")

        with monkeypatch.context() as patched:
            patched.setattr(type(one.door), "task", broken)
            error = await refused(one.client, method, taskId=task_id, inputResponses={})
        assert error.code == INTERNAL_ERROR
        assert "secret" not in error.message
        assert (await get(one.client, task_id))["status"] == "working"


# --- security -----------------------------------------------------------------------------------------------------


async def test_an_id_has_128_bits_that_nobody_can_guess(autojump_clock: MockClock) -> None:
    """Security Considerations, Task ID unguessability: nothing in an id is a counter, a time, or the same each time."""

    async def quick() -> str:
        return "done"

    async with client_of(server_with(quick)) as client:
        ids = [await start(client, "quick") for _ in range(300)]
    assert len(set(ids)) == len(ids)
    assert {len(task_id) for task_id in ids} == {22}
    assert set("".join(ids)) <= {*string.ascii_letters, *string.digits, "-", "_"}
    # The last of the 22 letters has 2 bits of the 128. Each of the others takes any of 64 values: a given one is
    # expected 5 times in 300 ids, and 25 times in one run out of 10 ** 8.
    for place in range(21):
        assert max(Counter(task_id[place] for task_id in ids).values()) < 25
