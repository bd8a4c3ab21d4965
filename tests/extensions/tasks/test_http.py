"""Tasks over HTTP: their principals, and the scopes that requests about them need (Security Considerations)."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from tests.auth.server.guarded import META, MODERN, Exchange, Table, ask, person, protected
from tests.http_peer import request
from tests.peer import settle
from trio_mcp import Context, Server
from trio_mcp.extensions import TaskPolicy, Tasks
from trio_mcp.types import meta

DECLARED = {meta.CLIENT_CAPABILITIES: {"extensions": {"io.modelcontextprotocol/tasks": {}}}}
ABOUT = ["tasks/get", "tasks/update", "tasks/cancel", "subscriptions/listen"]


def sent(token: str, method: str, **params: Any) -> Exchange:
    fields = {"mcp_protocol_version": MODERN, "mcp_method": method}
    if name := params.get("taskId", params.get("name")):
        fields["mcp_name"] = name
    return Exchange("POST", token, request(method, {**params, "_meta": {**META, **DECLARED}}, 1), **fields)


def about(token: str, method: str, task_id: str) -> Exchange:
    if method == "subscriptions/listen":
        return sent(token, method, notifications={"taskIds": [task_id]})
    return sent(token, method, taskId=task_id, inputResponses={})


def server_of(work: Any) -> Server:
    server = Server("office", extensions=[Tasks()])
    server.add_tool(work, name="write", scopes={"write"}, task=TaskPolicy(after=0))
    return server


async def forever(ctx: Context) -> str:
    await trio.sleep_forever()
    return ""


@pytest.mark.parametrize("gone", [False, True])
@pytest.mark.parametrize("method", ABOUT)
async def test_a_weaker_token_of_the_same_person_does_not_pass(
    method: str, gone: bool, autojump_clock: MockClock
) -> None:
    server = server_of(forever)
    auth = Table({"full": person("ann", "write"), "weak": person("ann"), "other": person("bob", "write")})
    async with protected(server, auth) as app:
        task_id = (await ask(app, sent("full", "tools/call", name="write"))).json["result"]["taskId"]
        if gone:  # then the scopes are those that the call needed
            server.remove_tool("write")
        refused = await ask(app, about("weak", method, task_id))
        assert refused.status == 403
        assert refused.headers["www-authenticate"] == 'Bearer error="insufficient_scope", scope="write"'
        # Another person's task is unknown, like one that never was: the look-up comes first.
        if method != "subscriptions/listen":
            found, unknown = [await ask(app, about("other", method, each)) for each in (task_id, "none")]
            assert (found.status, found.json) == (unknown.status, unknown.json)
            assert (await ask(app, about("full", method, task_id))).status == 200


async def test_progress_and_logs_after_the_response_go_nowhere(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)

    async def work(ctx: Context) -> str:
        await trio.sleep(1)
        await ctx.report_progress(1, 2)
        await ctx.log("info", "still here")
        return "done"

    async with protected(server_of(work), Table({"full": person("ann", "write")})) as app:
        task_id = (await ask(app, sent("full", "tools/call", name="write"))).json["result"]["taskId"]
        await trio.sleep(2)
        await settle()
        state = (await ask(app, about("full", "tasks/get", task_id))).json["result"]
        assert state["status"] == "completed", state
    assert task_id not in caplog.text
