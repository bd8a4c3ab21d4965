"""An event store that fails costs the exchange that it failed for, and nothing else."""

from __future__ import annotations

import json
import logging
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from pydantic_core import from_json

from tests.http_peer import LATEST, Events, Raw
from tests.server.http.harness import Made, Name, served
from tests.waiting import eventually
from trio_mcp import Context, HttpOptions, MemoryEventStore, SqliteEventStore, TransportError
from trio_mcp.http.server.legacy.numbered_stream import MAX_WAITING_BYTES
from trio_mcp.stores.event_store import StoredEvent

pytestmark = pytest.mark.legacy


class Failing(MemoryEventStore):
    """A store of which one method fails."""

    def __init__(self, failing: str) -> None:
        super().__init__()
        self.failing = failing
        self.go = trio.Event()

    def _fail(self, method: str) -> None:
        if method == self.failing:
            raise OSError("disk full")

    async def append(self, session: str, events: Sequence[StoredEvent]) -> None:
        self._fail("append")
        await super().append(session, events)

    async def after(self, session: str, stream: int, number: int) -> Sequence[StoredEvent]:
        self._fail("after")
        return await super().after(session, stream, number)

    async def forget(self, session: str) -> None:
        self._fail("forget")
        await super().forget(session)


class Silent(MemoryEventStore):
    """A store that may fail after it has stored what it was handed."""

    silent = False

    async def append(self, session: str, events: Sequence[StoredEvent]) -> None:
        await super().append(session, events)
        if self.silent:
            raise OSError("no word from the disk")


async def works(http: Any) -> None:
    raw = Raw(http)
    await raw.initialize()
    assert (await raw.post("ping")).status_code == 200


ADD = {"name": "add", "arguments": {"a": 1, "b": 2}}


def told(r: Any) -> Any:
    """Return the message in a response, be it JSON or a stream."""
    if "event-stream" not in r.headers["content-type"]:
        return r.json()
    (data,) = [line for line in r.text.splitlines() if line.startswith("data: {")]
    return json.loads(data.removeprefix("data: "))


@pytest.mark.parametrize("revision", ["2025-06-18", LATEST])
async def test_the_exchange_fails_with_an_explanation_and_the_session_goes_on(
    revision: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A stream that has begun, as it has in the latest revision, ends with the error."""
    store = Failing("")
    async with served(HttpOptions(event_store=store)) as (_, http, _):
        raw = Raw(http)
        await raw.initialize(revision)
        store.failing = "append"
        for id in (5, 6):
            r = await raw.post("tools/call", ADD, id=id)
            assert r.status_code == (200 if revision == LATEST else 500)
            answer = told(r)
            assert (answer["id"], answer["error"]["code"]) == (id, -32603)
            assert "the event store failed" in answer["error"]["message"]
            assert "disk full" not in r.text  # that is for the log
        store.failing = ""
        r = await raw.post("tools/call", ADD, id=7)
        assert told(r)["result"]["structuredContent"] == {"result": 3}
        await works(http)
    assert "disk full" in caplog.text


async def test_an_event_that_cannot_be_stored_affects_only_its_own_stream(caplog: pytest.LogCaptureFixture) -> None:
    """A store is handed the events of all streams of a session in one batch."""

    class Picky(Failing):
        async def append(self, session: str, events: Sequence[StoredEvent]) -> None:
            await self.go.wait()
            if any(b"poison" in event.data for event in events):
                raise OSError("disk full")
            await super().append(session, events)

    store, made = Picky(""), Made()
    store.go = trio.Event()
    store.go.set()

    @made.server.tool
    async def echo(text: str, ctx: Context) -> str:
        return text

    async with served(HttpOptions(event_store=store), made) as (_, http, _), trio.open_nursery() as nursery:
        raw = Raw(http)
        await raw.initialize()
        store.go = trio.Event()
        answers: dict[str, Any] = {}

        async def call(text: str, id: int) -> None:
            answers[text] = told(await raw.post("tools/call", {"name": "echo", "arguments": {"text": text}}, id=id))

        for number, text in enumerate(("one", "poison", "two"), 1):  # the store waits with the first
            nursery.start_soon(call, text, number + 4)
            await eventually(lambda: made.server.statistics().http[0].unstored >= number)  # noqa: B023
        store.go.set()
        await eventually(lambda: len(answers) == 3)
    assert {text: "result" in answer for text, answer in answers.items()} == {"one": True, "poison": False, "two": True}


async def test_a_response_that_was_stored_without_a_word_comes_alone(caplog: pytest.LogCaptureFixture) -> None:
    """A store that fails may have stored it. A request gets one response: no error may follow that one."""

    store, made = Silent(), Made()
    async with served(HttpOptions(event_store=store), made) as (_, http, _):
        raw = Raw(http)
        await raw.initialize()
        async with raw.call("wait", {"progress": 1}) as r:
            last = await Events(r).next()
        store.silent = True
        made.go.set()
        await eventually(lambda: not made.server.statistics().http[0].unanswered)
        store.silent = False
        for _ in range(2):
            async with raw.listen(last.id) as r:
                _, *messages = await Events(r).messages()
                assert [set(each) & {"result", "error"} for each in messages] == [{"result"}]


async def test_an_event_that_was_stored_without_a_word_keeps_its_number(caplog: pytest.LogCaptureFixture) -> None:
    """Later messages come after it. If its number were given away, the store would not keep what came with it."""
    store, made = Silent(), Made()

    @made.server.tool
    async def steps(ctx: Context) -> None:
        for number, store.silent in ((1, False), (2, True), (3, True), (4, False)):
            await ctx.report_progress(number)
            await eventually(lambda: not made.server.statistics().http[0].unstored)

    async with served(HttpOptions(event_store=store), made) as (_, http, _):
        raw = Raw(http)
        await raw.initialize()
        async with raw.call("steps") as r:
            first, *live = [(each.id, each.data) async for each in Events(r)]
        assert [id for id, _ in live] == [f"1-{number}" for number in range(1, 6)]
        assert [from_json(data).get("params", {}).get("progress") for _, data in live] == [1, 2, 3, 4, None]
        for place, (id, _) in enumerate([first, *live[:-1]]):
            async with raw.listen(id) as r:
                _, *again = [(each.id, each.data) async for each in Events(r)]
            assert again == live[place:]


async def test_a_notification_is_dropped_and_a_request_to_the_client_fails(caplog: pytest.LogCaptureFixture) -> None:
    """The exchange goes on: the next message is stored and sent as usual."""
    store, made = Failing(""), Made()

    @made.server.tool
    async def talk(ctx: Context) -> list[str]:
        said = []
        for store.failing in ("append", ""):
            await ctx.report_progress(1 if store.failing else 2)
            try:
                said.append((await ctx.elicit("Who?", Name)).action)
            except TransportError as exc:
                said.append(str(exc))
        return said

    async with served(HttpOptions(event_store=store), made) as (_, http, _):
        raw = Raw(http)
        await raw.initialize(elicitation={})
        async with raw.call("talk") as r:
            events = Events(r)
            progress, question = await events.message(), await events.message()
            assert (progress["params"]["progress"], question["method"]) == (2, "elicitation/create")
            await raw.send({"jsonrpc": "2.0", "id": question["id"], "result": {"action": "decline"}})
            assert (await events.message())["result"]["structuredContent"]["result"] == [
                "'elicitation/create' was not sent: the event store failed",
                "decline",
            ]


async def test_the_stream_of_the_session_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    store = Failing("")
    async with served(HttpOptions(event_store=store)) as (made, http, _):
        raw = Raw(http)
        await raw.initialize()
        async with raw.listen() as r:
            events = Events(r)
            for store.failing, name in (("append", "fails"), ("", "count"), ("", "wait")):
                made.server.remove_tool(name)
                await trio.testing.wait_all_tasks_blocked(0.05)
            methods = [(await events.message())["method"] for _ in range(2)]
            assert methods == ["notifications/tools/list_changed"] * 2


async def test_a_full_sqlite_store_fails_only_what_does_not_fit(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """SQLITE_FULL, which SQLite also reports for ENOSPC: the file can't grow."""
    made = Made()

    @made.server.tool
    async def echo(text: str, ctx: Context) -> str:
        return text

    class Full(SqliteEventStore):
        @staticmethod
        def _prepare(connection: sqlite3.Connection) -> None:
            super(Full, Full)._prepare(connection)
            connection.execute("PRAGMA max_page_count = 40")

    async with Full(tmp_path / "events.db") as store, served(HttpOptions(event_store=store), made) as (_, http, _):
        raw = Raw(http)
        await raw.initialize("2025-06-18")
        small, large = ({"name": "echo", "arguments": {"text": "x" * size}} for size in (10, 500_000))
        for id in (5, 7):
            r = await raw.post("tools/call", large, id=id)
            assert (r.status_code, r.json()["id"]) == (500, id)
            assert "result" in told(await raw.post("tools/call", small, id=id + 1))
    assert "database or disk is full" in caplog.text


@pytest.mark.parametrize("store", [Failing("after"), MemoryEventStore(max_bytes=1)], ids=["failing", "forgetful"])
@pytest.mark.parametrize("revision", ["2025-06-18", LATEST])
async def test_what_is_read_as_it_is_sent_does_not_depend_on_reading_the_store(
    revision: str, store: MemoryEventStore
) -> None:
    """It comes from the stream's queue: a store that can't be read costs only those who come back."""
    async with served(HttpOptions(event_store=store)) as (_, http, _):
        raw = Raw(http)
        await raw.initialize(revision)
        r = await raw.post("tools/call", ADD, id=5)
        assert r.status_code == 200
        assert told(r)["result"]["structuredContent"] == {"result": 3}


@pytest.mark.parametrize("failing", [True, False])
@pytest.mark.parametrize(("revision", "begun"), [("2025-06-18", False), (LATEST, False), (LATEST, True)])
async def test_a_response_too_large_for_the_queue_needs_the_store(
    revision: str, begun: bool, failing: bool, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a store, a stream's queue holds `MAX_WAITING_BYTES`; what the store can't return is an error."""
    store, made = Failing(""), Made()

    @made.server.tool
    async def large(ctx: Context) -> str:
        return "x" * MAX_WAITING_BYTES

    # In the latest revision the stream has begun by then, or not.
    monkeypatch.setattr("trio_mcp.http.server.legacy.session.PRIMING_DELAY", 0 if begun else 30.0)
    async with served(HttpOptions(event_store=store), made) as (_, http, _):
        raw = Raw(http)
        await raw.initialize(revision)
        store.failing = "after" if failing else ""
        r = await raw.post("tools/call", {"name": "large"}, id=5)
        answer = told(r)
        assert answer["id"] == 5
        if failing:
            assert r.status_code == (200 if begun else 500)
            assert answer["error"]["message"] == "the request got no response: the event store failed"
        else:
            assert len(answer["result"]["content"][0]["text"]) == MAX_WAITING_BYTES


@pytest.mark.parametrize("own", [True, False], ids=["own session", "unknown session"])
async def test_a_replay_that_fails_is_refused(own: bool, caplog: pytest.LogCaptureFixture) -> None:
    store = Failing("")
    async with served(HttpOptions(event_store=store)) as (_, http, _):
        raw = Raw(http)
        await raw.initialize()
        await raw.post("tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}})
        store.failing = "after"
        if not own:
            raw.session = "unknown"
        with caplog.at_level(logging.CRITICAL, "trio_mcp"):
            async with raw.listen("1-1") as r:
                assert r.status_code == (410 if own else 404)
        store.failing = ""
        await works(http)


async def test_a_session_ends_even_if_the_store_fails_to_forget_it(caplog: pytest.LogCaptureFixture) -> None:
    """By a DELETE, or because it expires unused."""
    async with served(HttpOptions(event_store=Failing("forget"), session_timeout=0.5)) as (_, http, _):
        with caplog.at_level(logging.CRITICAL, "trio_mcp"):
            raw = Raw(http)
            await raw.initialize()
            await http.request("DELETE", "/mcp", headers=raw.headers())
            unused = Raw(http)
            await unused.initialize()

            async def expired() -> bool:
                await trio.sleep(0.6)  # a ping that comes sooner keeps it alive
                return (await unused.post("ping")).status_code == 404

            await eventually(expired)
        await works(http)


def settled(made: Made) -> bool:
    """Return whether each request has its response, in the store or not."""
    (statistics,) = made.server.statistics().http
    return statistics.unanswered == statistics.unstored == 0


@pytest.mark.parametrize("begun", [False, True])
async def test_a_client_that_comes_back_is_told_that_its_response_was_lost(
    begun: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Not an empty stream that ends, as if it had everything; and again, until it has got that."""
    store = Failing("")
    async with served(HttpOptions(event_store=store)) as (made, http, _):
        raw = Raw(http)
        await raw.initialize()
        async with raw.call("wait", {"progress": 1} if begun else {}, id=7) as r:
            last = (await Events(r).next()).id
            await made.started.wait()
        await eventually(lambda: made.server.statistics().http[0].exchanges == 0)
        store.failing = "append"
        made.go.set()
        await made.finished.wait()
        await eventually(lambda: settled(made))
        store.failing = ""
        for _ in range(2):
            async with raw.listen(last) as r:
                events = Events(r)
                messages = [await events.message() for _ in range(1 + begun)]
                assert "the event store failed" in messages[-1]["error"]["message"]
                assert messages[-1]["id"] == 7
        await works(http)


async def test_only_so_many_lost_responses_are_kept_for_those_who_come_back(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The oldest are dropped."""
    monkeypatch.setattr("trio_mcp.http.server.legacy.streams.MAX_FAULTY", 2)
    store = Failing("")
    async with served(HttpOptions(event_store=store)) as (made, http, _):
        raw = Raw(http)
        await raw.initialize()
        lasts = []
        for id in range(3):
            made.started = trio.Event()
            async with raw.call("wait", id=id) as r:
                lasts.append((await Events(r).next()).id)
                await made.started.wait()
        store.failing = "append"
        made.go.set()
        await eventually(lambda: settled(made))
        store.failing = ""
        statuses = []
        for last in lasts:
            async with raw.listen(last) as r:
                statuses.append(r.status_code)
        assert sorted(statuses) == [200, 200, 410]
