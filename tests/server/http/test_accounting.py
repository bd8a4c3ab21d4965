"""Accounting: work under way counts, in requests and bytes, for its session and the endpoint, until it is settled."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import trio
from pydantic_core import from_json, to_json
from trio.testing import wait_all_tasks_blocked

from tests.http_peer import LATEST, request
from tests.server.http.asgi_client import Connection
from tests.server.http.harness import Made
from trio_mcp import HttpOptions, SessionOptions
from trio_mcp.http.server.app import HttpApp
from trio_mcp.low_level import HandlerOptions
from trio_mcp.types import OVERLOADED

MODERN = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "c", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}
HELLO = {"protocolVersion": LATEST, "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}


class Caller:
    """A client of the application in the given `Way`."""

    def __init__(self, app: HttpApp, nursery: trio.Nursery) -> None:
        self.app, self.nursery = app, nursery
        self.path, self.fields = "/mcp", dict[str, str]()
        self.next_id = 1
        self.stream: Connection | None = None

    async def post(self, message: Any, *, leaves: bool = False) -> Connection:
        """Post a message, and either hang up as soon as its handler runs, or wait for the response."""
        made = Connection("POST", self.fields, to_json(message), self.path)
        self.nursery.start_soon(made.run, self.app)
        await wait_all_tasks_blocked()
        if leaves:
            made.left.set()
            await wait_all_tasks_blocked()
        return made

    async def call(self, tool: str, *, leaves: bool = False, **arguments: Any) -> Connection:
        self.next_id += 1
        params: dict[str, Any] = {"name": tool, "arguments": arguments}
        if self.fields.get("mcp-protocol-version") == "2026-07-28":
            params["_meta"] = MODERN
            self.fields["mcp-name"] = tool
        return await self.post(request("tools/call", params, self.next_id), leaves=leaves)


async def modern(caller: Caller) -> None:
    caller.fields = {"mcp-protocol-version": "2026-07-28", "mcp-method": "tools/call"}


async def session(caller: Caller) -> None:
    opened = await caller.post(request("initialize", HELLO, 1))
    caller.fields = {"mcp-session-id": opened.headers["mcp-session-id"]}
    await caller.post({"jsonrpc": "2.0", "method": "notifications/initialized"})


async def sse(caller: Caller) -> None:
    caller.stream = Connection("GET", {}, b"", "/sse")
    caller.nursery.start_soon(caller.stream.run, caller.app)
    await wait_all_tasks_blocked()
    caller.path = caller.stream.events()[0].data.decode()
    await caller.post(request("initialize", HELLO | {"protocolVersion": "2024-11-05"}, 1))
    await caller.post({"jsonrpc": "2.0", "method": "notifications/initialized"})


Way = Callable[[Caller], Any]
LEGACY = [pytest.param(each, marks=pytest.mark.legacy) for each in (session, sse)]
WAYS = pytest.mark.parametrize("way", [modern, *LEGACY])
SESSIONS = pytest.mark.parametrize("way", LEGACY)


class Slow(Made):
    """A server whose tool `hold` takes data and waits; it can't be cancelled."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.running = 0

        @self.server.tool
        async def hold(text: str = "") -> str:
            self.running += 1
            try:
                with trio.CancelScope(shield=True):
                    await self.go.wait()
            finally:
                self.running -= 1
            return "held"


@contextlib.asynccontextmanager
async def calling(way: Way, limits: HandlerOptions | None = None, **options: Any) -> AsyncIterator[tuple[Slow, Caller]]:
    made = Slow(options=SessionOptions(handlers=limits or HandlerOptions()))
    if way is sse:
        options["sse_path"] = "/sse"
    with trio.fail_after(20):
        async with made.server.asgi_app(HttpOptions(**options)) as app, trio.open_nursery() as nursery:
            caller = Caller(app, nursery)
            await way(caller)
            try:
                yield made, caller
            finally:
                made.go.set()
                await wait_all_tasks_blocked()
            assert app.statistics().requests == app.statistics().bodies == 0
            assert app.statistics().request_bytes == app.statistics().body_bytes == 0
            nursery.cancel_scope.cancel()


@WAYS
async def test_a_request_counts_until_its_handler_ends_whether_its_client_stays_or_not(way: Way) -> None:
    async with calling(way, max_requests=3) as (made, caller):
        answers = [await caller.call("hold", leaves=True) for _ in range(10)]
        assert made.running == caller.app.statistics().requests == 3
        assert [each.status for each in answers[3:]] == [503] * 7
        assert answers[-1].headers["retry-after"]
        assert from_json(answers[-1].body)["error"]["code"] == OVERLOADED
        made.go.set()
        await wait_all_tasks_blocked()
        assert caller.app.statistics().requests == 0
        assert (await caller.call("add", a=1, b=2)).status in (200, 202)


@pytest.mark.legacy
@pytest.mark.parametrize("stored", [False, True], ids=["no store", "store"])
async def test_an_exchange_ends_when_its_client_leaves_though_the_handler_goes_on(
    stored: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    from trio_mcp import MemoryEventStore

    monkeypatch.setattr("trio_mcp.http.server.legacy.session.PRIMING_DELAY", 1000.0)
    async with calling(session, event_store=MemoryEventStore() if stored else None) as (made, caller):
        assert (await caller.call("hold", leaves=True)).over.is_set()
        assert made.running == 1


@WAYS
async def test_requests_under_way_have_a_budget_in_bytes(way: Way) -> None:
    async with calling(way, max_request_bytes=100_000) as (made, caller):
        answers = [await caller.call("hold", text="x" * 30_000, leaves=True) for _ in range(10)]
        assert made.running == 3
        assert 90_000 < caller.app.statistics().request_bytes <= 100_000
        assert [each.status for each in answers[3:]] == [503] * 7
        assert "max_request_bytes" in from_json(answers[-1].body)["error"]["message"]
        assert (await caller.call("add", a=1, b=2)).status in (200, 202)  # it is small


@WAYS
async def test_one_request_alone_is_always_taken(way: Way) -> None:
    async with calling(way, HandlerOptions(max_incoming_bytes=1000), max_request_bytes=1000) as (made, caller):
        await caller.call("hold", text="x" * 30_000)
        assert made.running == 1


@SESSIONS
async def test_a_session_has_a_share_of_its_own(way: Way) -> None:
    async with calling(way, HandlerOptions(max_incoming_bytes=100_000)) as (made, caller):
        answers = [await caller.call("hold", text="x" * 30_000) for _ in range(4)]
        assert made.running == 3
        told = from_json((caller.stream.events()[-1].data) if caller.stream else answers[-1].body)
        assert told["error"]["code"] == OVERLOADED
        assert "max_incoming_bytes=100000" in told["error"]["message"]


@SESSIONS
async def test_a_request_that_waits_for_a_place_counts_too_until_it_is_cancelled(way: Way) -> None:
    async with calling(way, HandlerOptions(max_running_requests=1), max_requests=3) as (made, caller):
        for _ in range(4):
            await caller.call("hold", leaves=True)
        assert (made.running, caller.app.statistics().requests) == (1, 3)
        cancelled = {"requestId": caller.next_id - 1}
        await caller.post({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": cancelled})
        assert caller.app.statistics().requests == 2


@SESSIONS
async def test_responses_and_cancellations_are_taken_when_nothing_else_is(way: Way) -> None:
    """A handler that is under way may wait for them."""
    async with calling(way, max_requests=1, max_request_bytes=1000) as (_, caller):
        await caller.call("hold", text="x" * 2000, leaves=True)
        answer = {"jsonrpc": "2.0", "id": 1, "result": {"text": "y" * 2000}}
        assert (await caller.post(answer)).status == 202
        assert (
            await caller.post({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 99}})
        ).status == 202
        other = await caller.post({"jsonrpc": "2.0", "method": "notifications/other", "params": {"x": 1}})
        assert other.status == 503


@SESSIONS
async def test_the_budget_of_a_session_is_returned_when_it_ends(way: Way) -> None:
    async with calling(way, HandlerOptions(max_running_requests=1)) as (made, caller):
        for _ in range(3):
            await caller.call("hold")
        if caller.stream is not None:
            caller.stream.left.set()
        else:
            ended = Connection("DELETE", caller.fields, b"")
            caller.nursery.start_soon(ended.run, caller.app)
        await wait_all_tasks_blocked()
        assert caller.app.statistics().requests == made.running == 1  # it can't be cancelled


@WAYS
@pytest.mark.parametrize("limit", [{"max_request_bytes": 100_000}, {"max_requests": 2}], ids=["bytes", "number"])
async def test_bodies_being_read_have_a_budget_of_their_own(way: Way, limit: dict[str, int]) -> None:
    async with calling(way, **limit) as (_, caller):
        halves = []
        for _ in range(3):
            made = Connection("POST", caller.fields, b"x" * 45_000, caller.path)
            made.more = len(halves) < 2
            caller.nursery.start_soon(made.run, caller.app)
            await wait_all_tasks_blocked()
            halves.append(made)
        assert [each.status for each in halves] == [None, None, 503]
        assert caller.app.statistics().body_bytes == 90_000
        for each in halves:
            each.left.set()


@pytest.mark.legacy
async def test_a_batch_counts_as_its_messages() -> None:
    async with calling(session, max_requests=3) as (made, caller):
        caller.fields = {}
        opened = await caller.post(request("initialize", HELLO | {"protocolVersion": "2025-03-26"}, 1))
        caller.fields = {"mcp-session-id": opened.headers["mcp-session-id"]}
        batch = [request("tools/call", {"name": "hold", "arguments": {}}, id) for id in range(10, 14)]
        assert (await caller.post(batch)).status == 503
        await caller.post(batch[:3], leaves=True)
        assert made.running == caller.app.statistics().requests == 3
