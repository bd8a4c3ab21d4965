"""Random exchanges, abandoned or cancelled at random moments: the sessions that are left work and can be ended."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic_core import from_json, to_json

from tests.effort import examples
from tests.http_peer import LATEST, request
from tests.server.http.asgi_client import Connection
from tests.server.http.harness import Made
from trio_mcp import EventStore, MemoryEventStore
from trio_mcp.http.server.app import HttpApp
from trio_mcp.http.server.options import HttpOptions

pytestmark = pytest.mark.legacy

HELLO = {"protocolVersion": LATEST, "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}

ACTS = ["open", "count", "wait", "ping", "fails", "listen", "resume", "cancel", "delete", "broken"]
ENDS = ["serve", "serve", "leave", "cancel"]


@attrs.define
class Step:
    """One exchange.

    Attributes:
        act: What is asked.
        who: In which session, of those that are there.
        turns: After so many turns of the event loop the next step begins,
        end: and this exchange goes on, is left by its client, or is cancelled, as by a connection that fails.
    """

    act: str
    who: int
    turns: int
    end: str


STEPS = st.lists(
    st.builds(Step, st.sampled_from(ACTS), st.integers(0, 3), st.integers(0, 12), st.sampled_from(ENDS)),
    min_size=8,
    max_size=40,
)


class Yard:
    """A server, its sessions, and the exchanges under way."""

    def __init__(self, app: HttpApp, nursery: trio.Nursery) -> None:
        self.app = app
        self.nursery = nursery
        self.sessions: list[str] = []
        self.deleted: set[str] = set()
        self.endless: list[Connection] = []  # exchanges whose stream stays open forever
        self.number = 0

    def made(self, step: Step) -> Connection:
        self.number += 1
        name = self.sessions[step.who % len(self.sessions)] if self.sessions else "unknown"
        session = {"mcp-session-id": name}
        call: dict[str, Any] = {"_meta": {"progressToken": self.number}, "name": step.act, "arguments": {}}
        match step.act:
            case "open":
                return Connection("POST", {}, to_json(request("initialize", HELLO, 0)))
            case "count":
                call["arguments"] = {"to": 3}
            case "wait":
                call["arguments"] = {"progress": step.turns % 3}
            case "ping":
                return Connection("POST", session, to_json(request("ping", None, self.number)))
            case "listen":
                return Connection("GET", session, b"")
            case "resume":
                last = f"{step.turns % (self.number + 1)}-{step.turns % 3}"
                return Connection("GET", {**session, "last-event-id": last}, b"")
            case "cancel":
                params = {"requestId": step.turns * self.number // 12, "reason": "enough"}
                notice = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}
                return Connection("POST", session, to_json(notice))
            case "delete":
                return Connection("DELETE", session, b"")
            case "broken":
                return Connection("POST", session, b'{"jsonrpc": "2.0", "id": 1')
        return Connection("POST", session, to_json(request("tools/call", call, self.number)))

    async def take(self, step: Step) -> None:
        connection, scope = self.made(step), trio.CancelScope()
        session, last = connection.fields.get("mcp-session-id", ""), connection.fields.get("last-event-id", "0-")
        if step.act == "delete":
            self.deleted.add(session)
        if step.act in ("listen", "resume") and last.startswith("0-"):
            self.endless.append(connection)

        async def run() -> None:
            with scope:
                await connection.run(self.app)
            if step.act == "open" and "mcp-session-id" in connection.headers:
                self.sessions.append(connection.headers["mcp-session-id"])

        self.nursery.start_soon(run)
        for _ in range(step.turns):
            await trio.lowlevel.checkpoint()
        if step.end == "leave":
            connection.left.set()
        elif step.end == "cancel":
            scope.cancel()

    async def said(self, method: str, session: str, message: Any) -> Connection:
        connection = Connection(method, {"mcp-session-id": session}, b"" if message is None else to_json(message))
        await connection.run(self.app)
        return connection


async def play(store: EventStore | None, steps: list[Step]) -> None:
    made = Made()
    async with made.server.asgi_app(HttpOptions(event_store=store)) as app:
        await trio.testing.wait_all_tasks_blocked()
        tasks = trio.lowlevel.current_statistics().tasks_living
        async with trio.open_nursery() as nursery:
            yard = Yard(app, nursery)
            for step in steps:
                await yard.take(step)
            made.go.set()  # handlers end, and with them the exchanges that wait for a response
            await trio.testing.wait_all_tasks_blocked()
            for connection in yard.endless:
                connection.left.set()
            await trio.testing.wait_all_tasks_blocked()
            assert not nursery.child_tasks
        left = app.statistics()
        assert (left.requests, left.exchanges, left.streams, left.unanswered, left.unstored) == (0, 0, 0, 0, 0)
        assert left.idle_sessions == left.sessions
        served = made.server.statistics()
        assert (served.incoming, served.running) == (0, 0)
        for session in yard.sessions:
            if session not in yard.deleted:
                answered = await yard.said("POST", session, request("ping", None, 1000))
                assert from_json(answered.events()[-1].data if answered.events() else answered.body)["result"] == {}
                assert (await yard.said("DELETE", session, None)).status == 204
        await trio.sleep(2 * app.options.settings["session_timeout"])  # for sessions whose id never reached a client
        assert (app.statistics().sessions, made.server.statistics().sessions) == (0, 0)
        assert trio.lowlevel.current_statistics().tasks_living == tasks
        if isinstance(store, MemoryEventStore):
            assert len(store) == 0


@settings(max_examples=examples(100))
@given(STEPS)
def test_without_a_store(steps: list[Step]) -> None:
    trio.run(play, None, steps, clock=trio.testing.MockClock(autojump_threshold=0))


@settings(max_examples=examples(100))
@given(STEPS)
def test_with_a_store(steps: list[Step]) -> None:
    trio.run(play, MemoryEventStore(), steps, clock=trio.testing.MockClock(autojump_threshold=0))
