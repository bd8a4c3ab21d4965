"""Random disconnects and reconnects: nothing is lost, nothing comes twice, nothing is mixed up (as a state machine)."""

from __future__ import annotations

import contextlib
import itertools
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
from hypothesis import given, settings, strategies as st
from pydantic_core import from_json, to_json
from trio.testing import MockClock

from tests.effort import examples
from tests.server.http.asgi_client import Connection
from tests.waiting import eventually
from trio_mcp import Context, Server
from trio_mcp.http.server.app import HttpApp
from trio_mcp.http.server.legacy.streams import STORE_FAILED
from trio_mcp.http.server.options import HttpOptions
from trio_mcp.stores.event_store import EventStore, StoredEvent
from trio_mcp.stores.event_stores import MemoryEventStore, SqliteEventStore

pytestmark = pytest.mark.legacy


class Call:
    """A call as its client sees it, over all the connections that have carried it."""

    def __init__(self, token: str, connection: Connection) -> None:
        self.token = token
        self.connection: Connection | None = connection
        self.seen: list[Any] = []
        self.last = ""
        self.sent = 0
        self.data: dict[str, bytes] = {}

    @property
    def refused(self) -> bool:
        """Whether the response was an error, as the store has refused it."""
        return bool(self.seen) and "error" in self.seen[-1]

    def leave(self) -> None:
        """Read what has arrived, and close the connection."""
        assert self.connection is not None
        self.connection.left.set()
        for event in self.connection.events():
            self.last = event.id or self.last
            if event.data:
                self.seen.append(from_json(event.data))
                # An id names one event. The error in place of a response that could not be stored has no id.
                if STORE_FAILED.encode() not in event.data:
                    assert self.data.setdefault(event.id or "", event.data) == event.data
        self.connection = None


class Client:
    """A client of one session, and its running handlers."""

    def __init__(self, app: HttpApp, nursery: trio.Nursery, orders: dict[str, Any]) -> None:
        self.app = app
        self.nursery = nursery
        self.orders = orders
        self.session: dict[str, str] = {}
        self.calls: list[Call] = []

    def open(self, method: str, headers: dict[str, str], message: Any = None) -> Connection:
        body = b"" if message is None else to_json({"jsonrpc": "2.0", **message})
        connection = Connection(method, {**self.session, **headers}, body)
        self.nursery.start_soon(connection.run, self.app)
        return connection

    async def initialize(self) -> None:
        params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
        opened = self.open("POST", {}, {"id": 0, "method": "initialize", "params": params})
        await opened.over.wait()
        self.session = {"mcp-session-id": opened.headers["mcp-session-id"]}
        await self.open("POST", {}, {"method": "notifications/initialized"}).over.wait()

    async def call(self) -> None:
        number = len(self.calls) + 1
        token = f"{self.session['mcp-session-id']}/{number}"
        self.orders[token] = trio.open_memory_channel[bool](1000)
        params = {"name": "work", "arguments": {}, "_meta": {"progressToken": token}}
        connection = self.open("POST", {}, {"id": number, "method": "tools/call", "params": params})
        self.calls.append(Call(token, connection))
        # The first event gives it an id to come back with.
        await eventually(lambda: bool(connection.events()) or connection.over.is_set())

    def order(self, index: int, more: bool) -> None:
        call = self.calls[index % len(self.calls)]
        with contextlib.suppress(trio.ClosedResourceError):
            send = self.orders[call.token][0]
            send.send_nowait(more)
            call.sent += 1
            if not more:
                send.close()

    def toggle(self, index: int) -> None:
        """Leave, or come back."""
        call = self.calls[index % len(self.calls)]
        if call.connection is None and call.refused:
            return  # there is nothing to come back for
        if call.connection is None:
            call.connection = self.open("GET", {"last-event-id": call.last})
        else:
            call.leave()

    async def check(self, lossy: bool) -> None:
        """Let every call end, come back for the rest, and compare; a lossy store may have lost some of it."""
        for index, call in enumerate(self.calls):
            self.order(index, more=False)
            for _ in range(0 if call.refused else 20):
                if call.connection is None:
                    self.toggle(index)
                assert call.connection is not None
                await call.connection.over.wait()
                call.leave()
                if call.seen and "id" in call.seen[-1]:
                    break  # otherwise an older connection was late, and this one had to give way to it
            *progress, answer = call.seen
            numbers, sent = [each["params"]["progress"] for each in progress], [*range(1, call.sent)]
            assert numbers == ([each for each in sent if each in numbers] if lossy else sent)
            assert {each["params"]["progressToken"] for each in progress} <= {call.token}
            if lossy and "error" in answer:
                assert answer["error"]["message"] == f"the request got no response: {STORE_FAILED}"
            else:
                assert answer["result"]["structuredContent"] == {"result": call.token}


async def play(store: EventStore, steps: list[tuple[str, int, int]], *, lossy: bool = False) -> None:
    orders: dict[str, Any] = {}
    server = Server("test")

    @server.tool
    async def work(ctx: Context) -> str:
        token: str = ctx.meta["progressToken"]
        done = 0
        async for more in orders[token][1]:
            if not more:
                break
            done += 1
            await ctx.report_progress(done)
        return token

    async with server.asgi_app(HttpOptions(event_store=store)) as app, trio.open_nursery() as nursery:
        clients = [Client(app, nursery, orders) for _ in range(2)]
        for client in clients:
            await client.initialize()
            await client.call()
        acts: dict[str, Callable[[Client, int], Awaitable[None] | None]] = {
            "call": lambda client, index: client.call(),
            "send": lambda client, index: client.order(index, more=True),
            "end": lambda client, index: client.order(index, more=False),
            "toggle": lambda client, index: client.toggle(index),
            "settle": lambda client, index: trio.testing.wait_all_tasks_blocked(),
            "step": lambda client, index: trio.lowlevel.checkpoint(),  # noqa: ASYNC105 - it is awaited below
        }
        for act, who, index in steps:
            outcome = acts[act](clients[who], index)
            if outcome is not None:
                await outcome
        for client in clients:
            await client.check(lossy)
        nursery.cancel_scope.cancel()


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["call", "send", "send", "send", "end", "toggle", "toggle", "settle", "step"]),
        st.integers(0, 1),
        st.integers(0, 5),
    ),
    min_size=15,
    max_size=60,
)


@settings(max_examples=examples(60))
@given(STEPS)
def test_whatever_breaks_everything_arrives_once_and_in_order(steps: list[tuple[str, int, int]]) -> None:
    trio.run(play, MemoryEventStore(), steps)


class Hesitant(MemoryEventStore):
    """A store with varying delays, so that calls need not end in the order in which they began."""

    def __init__(self, delays: list[float]) -> None:
        super().__init__(clock=lambda: 0.0)
        self._delays = itertools.cycle(delays)

    async def append(self, session: str, events: Sequence[StoredEvent]) -> None:
        await trio.sleep(next(self._delays))
        await super().append(session, events)
        await trio.sleep(next(self._delays))

    async def after(self, session: str, stream: int, number: int) -> Sequence[StoredEvent]:
        await trio.sleep(next(self._delays))
        found = await super().after(session, stream, number)
        await trio.sleep(next(self._delays))
        return found


@settings(max_examples=examples(60))
@given(STEPS, st.lists(st.sampled_from([0.0, 0.0, 0.001, 0.1, 1.0]), min_size=1, max_size=7))
def test_with_a_slow_store_everything_arrives_once_and_in_order(
    steps: list[tuple[str, int, int]], delays: list[float]
) -> None:
    """As on a busy machine; time is that of an autojump clock."""
    trio.run(play, Hesitant(delays), steps, clock=MockClock(autojump_threshold=0))


class Unreliable(Hesitant):
    """A slow store that may fail when it is handed events, before it stores them or after that.

    It never fails at first, so that the two sessions come to be.
    """

    def __init__(self, delays: list[float], outcomes: list[str]) -> None:
        super().__init__(delays)
        self._outcomes = itertools.chain(["stored"] * 2, itertools.cycle(outcomes))

    async def append(self, session: str, events: Sequence[StoredEvent]) -> None:
        outcome = next(self._outcomes)
        if outcome != "refused":
            await super().append(session, events)
        if outcome != "stored":
            await trio.lowlevel.checkpoint()
            raise OSError(outcome)


@settings(max_examples=examples(60))
@given(
    STEPS,
    st.lists(st.sampled_from([0.0, 0.0, 0.001, 0.1, 1.0]), min_size=1, max_size=7),
    st.lists(st.sampled_from(["stored", "stored", "stored without a word", "refused"]), min_size=1, max_size=9),
)
def test_whatever_a_store_refuses_nothing_comes_twice_or_under_another_number(
    steps: list[tuple[str, int, int]], delays: list[float], outcomes: list[str]
) -> None:
    """What it has stored without a word included."""
    trio.run(partial(play, lossy=True), Unreliable(delays, outcomes), steps, clock=MockClock(autojump_threshold=0))


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@settings(max_examples=examples(8))
@given(STEPS)
def test_with_a_file_everything_arrives_once_and_in_order(steps: list[tuple[str, int, int]]) -> None:
    async def main() -> None:
        with tempfile.TemporaryDirectory() as folder:
            store = SqliteEventStore(Path(folder) / "events.db")
            try:
                await play(store, steps)
            finally:
                await store.aclose()

    trio.run(main)
