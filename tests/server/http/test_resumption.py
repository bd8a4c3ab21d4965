"""Streams that break and are resumed (2025-11-25 `basic/transports`, Resumability and Redelivery)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest
import trio
from pydantic_core import from_json

from tests.http_peer import Events, Raw
from tests.server.http.harness import Made, served, session
from tests.server.http.in_memory import writes
from tests.waiting import eventually
from trio_mcp import Context
from trio_mcp.http.server.options import HttpOptions
from trio_mcp.stores import MemoryStores, SqliteStores
from trio_mcp.stores.event_store import StoredEvent
from trio_mcp.stores.event_stores import PAGE, MemoryEventStore, SqliteEventStore

pytestmark = pytest.mark.legacy


def kept(**limits: float) -> HttpOptions:
    return HttpOptions(event_store=MemoryEventStore(**limits), retry=2.5)  # type: ignore[arg-type]


async def test_a_stream_is_primed_with_an_id_and_the_time_to_come_back() -> None:
    """Sending Messages, 6: the server SHOULD immediately send an event with an id and no data."""
    async with session(kept()) as (_, raw), raw.call("wait") as r:
        events = Events(r)
        first = await events.next()
        assert (first.data, first.id) == (b"", "1-0")
        assert events.decoder.retry == 2.5


async def test_a_stream_that_is_complete_at_once_leaves_in_one_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the id first, nevertheless: the client may be cut off in the middle of it."""
    monkeypatch.setattr("trio_mcp.http.server.legacy.session.PRIMING_DELAY", 30.0)  # however slow the machine
    async with session(kept()) as (_, raw):
        written = writes(monkeypatch)
        async with raw.call("add", {"a": 1, "b": 2}) as r:
            primed, response = [event async for event in Events(r)]
            assert (primed.data, primed.id, response.id) == (b"", "1-0", "1-1")
            assert r.headers["content-type"] == "text/event-stream"
    (whole,) = written
    assert whole.endswith(b"\n\n")


async def test_a_long_message_is_not_copied_for_the_id_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trio_mcp.http.server.legacy.session.PRIMING_DELAY", 30.0)  # however slow the machine
    monkeypatch.setattr("trio_mcp.http.server.legacy.session.MAX_JOINED", 10)
    async with session(kept()) as (_, raw):
        written = writes(monkeypatch)
        async with raw.call("add", {"a": 1, "b": 2}) as r:
            assert [event.id async for event in Events(r)] == ["1-0", "1-1"]
    primed, response = written
    assert primed.endswith(b"id: 1-0\ndata: \n\n\r\n")
    assert response.endswith(b"\n\n\r\n0\r\n\r\n")


async def test_the_first_message_leaves_with_the_id_and_the_response_with_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("trio_mcp.http.server.legacy.session.PRIMING_DELAY", 30.0)  # however slow the machine
    async with session(kept()) as (_, raw):
        written = writes(monkeypatch)
        async with raw.call("count", {"to": 1}) as r:
            assert [event.id async for event in Events(r)] == ["1-0", "1-1", "1-2"]
    assert b"id: 1-0\n" in written[0]
    assert b"id: 1-1\n" in written[0]
    assert b"id: 1-2\n" in written[-1]
    assert written[-1].endswith(b"\n\n\r\n0\r\n\r\n")


@pytest.mark.parametrize("revision", ["2025-03-26", "2025-06-18"])
async def test_earlier_revisions_get_ids_with_their_messages_only(revision: str) -> None:
    """An event without data came with 2025-11-25: an earlier client may take it for a broken message."""
    async with session(kept(), revision) as (_, raw), raw.call("count", {"to": 2}) as r:
        events = [event async for event in Events(r)]
        assert all(event.data for event in events)
        assert [event.id for event in events] == ["1-1", "1-2", "1-3"]


async def test_nothing_of_another_stream_or_session_is_replayed() -> None:
    """The server MUST NOT replay messages that would have been delivered on a different stream."""
    async with served(kept()) as (_, http, _):
        one, two = Raw(http), Raw(http)
        await one.initialize()
        await two.initialize()
        for raw in (one, two):
            async with raw.call("count", {"to": 1}, id=5, token=raw.session) as r:
                await r.aread()
        async with one.listen("1-0") as r:
            first, _ = await Events(r).messages()
        assert first["params"]["progressToken"] == one.session
        two_knows = await http.get("/mcp", headers={**two.headers(last_event_id="2-0"), "accept": "text/event-stream"})
        assert two_knows.status_code == 410


@pytest.mark.parametrize("last", ["", "x", "1", "1-x", "-1-1", "9" * 100 + "-1", "1-7"])
async def test_an_event_id_that_was_never_issued_is_refused(last: str) -> None:
    """Nor is one from the future of an open stream taken."""
    async with session(kept()) as (_, raw), raw.call("wait", {"progress": 1}) as r:
        await Events(r).message()
        async with raw.listen(last) as r:
            assert r.status_code == 400


async def test_events_that_are_no_longer_kept_are_reported_and_not_replayed_in_part() -> None:
    async with session(kept(max_events=2)) as (_, raw):
        async with raw.call("count", {"to": 5}) as r:
            await r.aread()
        async with raw.listen("1-1") as r:
            assert r.status_code == 410
            assert "no longer stored" in (await r.aread()).decode()


async def test_without_a_store_no_event_has_an_id() -> None:
    async with session() as (_, raw):
        async with raw.call("count", {"to": 1}) as r:
            assert [event.id async for event in Events(r)] == ["", ""]
        async with raw.listen("1-0") as r:
            assert r.status_code == 400


async def test_closing_a_stream_makes_the_client_poll() -> None:
    """Sending Messages, 6: after an event id, the server MAY close the connection, and SHOULD send `retry` first."""
    async with session(kept()) as (made, raw):
        async with raw.call("poll") as r:
            events = Events(r)
            (progress,) = await events.messages()
            assert progress["params"]["progress"] == 1
            assert events.decoder.retry == 0.25
            last = events.decoder.last_event_id
        assert made.closed == [True]
        made.go.set()
        async with raw.listen(last) as r:
            progress, answer = await Events(r).messages()
        assert progress["params"]["progress"] == 2
        assert answer["result"]["structuredContent"] == {"result": "polled"}


@pytest.mark.parametrize("retry", [None, 2.5])
async def test_a_stream_is_closed_where_it_was_asked_for(retry: float | None) -> None:
    """Messages sent before the close go out on the stream; the response of a handler that returns at once does not."""
    options = HttpOptions(event_store=MemoryEventStore(), retry=retry)
    async with session(options) as (made, raw):

        @made.server.tool
        async def hurry(ctx: Context) -> list[bool]:
            await ctx.report_progress(1)
            closed = [ctx.close_stream(), ctx.close_stream(retry=9)]
            await ctx.report_progress(2)
            return closed

        async with raw.call("hurry") as r:
            events = Events(r)
            (progress,) = await events.messages()
            assert progress["params"]["progress"] == 1
            assert events.decoder.retry == retry
        async with raw.listen(events.decoder.last_event_id) as r:
            progress, answer = await Events(r).messages()
        assert progress["params"]["progress"] == 2
        assert answer["result"]["structuredContent"] == {"result": [True, True]}


class Hasty(MemoryEventStore):
    """A store that has no checkpoint: what it is given can be sent in the same turn of the event loop."""

    async def append(self, session: str, events: Sequence[StoredEvent]) -> None:
        self.events = list(events)

    async def after(self, session: str, stream: int, number: int) -> Sequence[StoredEvent]:
        return [event for event in self.events if (event.stream, event.number) == (stream, number + 1)]


async def test_a_stream_that_is_closed_before_its_only_message_gives_the_id_to_come_back_with(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("trio_mcp.http.server.legacy.session.PRIMING_DELAY", 30.0)  # however slow the machine
    async with session(HttpOptions(event_store=Hasty())) as (made, raw):

        @made.server.tool
        async def hurry(ctx: Context) -> bool:
            return ctx.close_stream()

        for number in range(1, 21):  # Trio lets the tasks of a turn run in either order
            async with raw.call("hurry") as r:
                (primed,) = [event async for event in Events(r)]
                assert (primed.data, primed.id) == (b"", f"{number}-0")
            async with raw.listen(primed.id) as r:
                (answer,) = await Events(r).messages()
            assert answer["result"]["structuredContent"] == {"result": True}


async def test_the_stream_of_the_session_is_closed_so_that_the_client_polls() -> None:
    """Listening, 4: it SHOULD follow the same polling behaviour; what comes meanwhile waits for the client."""
    async with session(kept()) as (made, raw):

        @made.server.tool
        async def rest(ctx: Context) -> bool:
            made.server.remove_tool("add")
            await trio.testing.wait_all_tasks_blocked()
            return ctx.close_session_stream(retry=0.75)

        async def closed() -> bool:
            r = await raw.post("tools/call", {"name": "rest", "arguments": {}})
            events = Events(httpx.Response(200, content=r.content, headers=r.headers))
            (answer,) = await events.messages()
            result: bool = answer["result"]["structuredContent"]["result"]
            return result

        async with raw.listen() as r:
            events = Events(r)
            assert (await events.next()).id == "0-0"
            assert await closed()
            assert {each["method"] for each in await events.messages()} == {"notifications/tools/list_changed"}
            assert events.decoder.retry == 0.75
        made.server.remove_tool("fails")
        async with raw.listen(events.decoder.last_event_id) as r:
            assert (await Events(r).message())["method"] == "notifications/tools/list_changed"


@pytest.mark.parametrize(("stored", "json_only"), [(False, False), (True, True)], ids=["no store", "one text"])
async def test_a_stream_that_cannot_be_resumed_is_not_closed(stored: bool, json_only: bool) -> None:
    options = HttpOptions(event_store=MemoryEventStore() if stored else None, json_only=json_only)
    async with session(options) as (made, raw):

        @made.server.tool
        async def rest(ctx: Context) -> bool:
            return ctx.close_session_stream()

        made.go.set()
        for tool in ("poll", "rest"):  # the stream of the session was never opened
            async with raw.call(tool) as r:
                one_text = r.headers["content-type"] == "application/json"
                answer = from_json(await r.aread()) if one_text else (await Events(r).messages())[-1]
            assert answer["result"]["structuredContent"] == {"result": "polled" if tool == "poll" else False}
        assert made.closed == [False]


async def test_an_old_connection_gives_way_to_the_new_one() -> None:
    """A client whose connection is dead comes back before the server knows."""
    async with session(kept()) as (made, raw), raw.call("wait", {"progress": 1}) as old:
        events = Events(old)
        await events.message()
        async with raw.listen("1-1") as new:
            assert await events.messages() == []
            made.go.set()
            assert (await Events(new).message())["id"] == 1


async def test_a_response_that_has_not_begun_gives_way_to_one_that_resumes_its_stream(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its client can't have the id yet, but it is easy to guess."""
    monkeypatch.setattr("trio_mcp.http.server.legacy.session.PRIMING_DELAY", 1000.0)
    async with session(kept()) as (made, raw), trio.open_nursery() as nursery:
        first: list[httpx.Response] = []

        async def call() -> None:
            first.append(await raw.post("tools/call", {"name": "wait", "arguments": {}}))

        nursery.start_soon(call)
        await made.started.wait()
        async with raw.listen("1-0") as r:
            await eventually(lambda: first)
            assert (first[0].status_code, first[0].content) == (202, b"")
            made.go.set()
            (answer,) = await Events(r).messages()
        assert answer["result"]["structuredContent"] == {"result": "done"}


class Hesitant(MemoryEventStore):
    """A store whose reads wait until the test lets them go on."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = trio.Event()
        self.go = trio.Event()
        self.go.set()

    async def after(self, session: str, stream: int, number: int) -> Sequence[StoredEvent]:
        self.asked.set()
        await self.go.wait()
        return await super().after(session, stream, number)


async def test_an_older_request_that_waits_for_the_store_does_not_take_the_stream_from_a_newer_one() -> None:
    store = Hesitant()
    async with session(HttpOptions(event_store=store)) as (made, raw):
        async with raw.call("wait", {"progress": 1}) as r:
            await Events(r).message()
        store.asked, store.go = trio.Event(), trio.Event()
        async with trio.open_nursery() as nursery:
            older: list[list[Any]] = []

            async def resume() -> None:
                async with raw.listen("1-0") as r:
                    older.append(await Events(r).messages())

            nursery.start_soon(resume)
            await store.asked.wait()
            async with raw.listen("1-1") as newer:  # nothing to replay, so it is open at once
                store.go.set()
                await eventually(lambda: older)
                made.go.set()
                (answer,) = await Events(newer).messages()
        assert older == [[]]
        assert answer["result"]["structuredContent"] == {"result": "done"}


@pytest.mark.parametrize("kind", [SqliteEventStore, SqliteStores])
async def test_a_file_outlives_the_server_and_its_sessions_do_not(
    tmp_path: Path, kind: type[SqliteEventStore | SqliteStores]
) -> None:
    """After a restart: what was sent on a stream can be fetched, anything else starts with initialize (404)."""
    path = tmp_path / "events.db"

    def options(store: SqliteEventStore | SqliteStores) -> HttpOptions:
        return HttpOptions(event_store=store.sessions if isinstance(store, SqliteStores) else store)

    async with (
        kind(path) as store,
        session(options(store)) as (_, raw),
        raw.call("count", {"to": 2}) as r,
    ):
        await r.aread()
    async with kind(path) as store, served(options(store)) as (_, http, _):
        raw.http = http
        async with raw.listen("1-1") as r:
            progress, answer = await Events(r).messages()
            assert (progress["params"]["progress"], answer["id"]) == (2, 1)
        for last in (None, "1-3", "2-0", "x"):
            async with raw.listen(last) as r:
                assert r.status_code == 404
        assert (await raw.post("ping")).status_code == 404
        raw.session = "another"
        async with raw.listen("1-1") as r:
            assert r.status_code == 404


async def test_stores_in_memory_are_an_event_store() -> None:
    """The stores of tasks keep the messages of sessions, too."""
    async with session(HttpOptions(event_store=MemoryStores().sessions, retry=2.5)) as (_, raw):
        async with raw.call("count", {"to": 2}) as r:
            await r.aread()
        async with raw.listen("1-1") as r:
            progress, answer = await Events(r).messages()
        assert (progress["params"]["progress"], answer["id"]) == (2, 1)


async def test_the_end_of_a_session_forgets_its_events() -> None:
    options = kept()
    async with session(options) as (_, raw):
        async with raw.call("count", {"to": 2}) as r:
            await r.aread()
        assert isinstance(options.settings["event_store"], MemoryEventStore)
        assert len(options.settings["event_store"]) == 3
        await raw.http.delete("/mcp", headers=raw.headers())
        assert len(options.settings["event_store"]) == 0


class Slow(MemoryEventStore):
    def __init__(self) -> None:
        super().__init__()
        self.asked, self.go = trio.Event(), trio.Event()

    async def append(self, session: str, events: Sequence[StoredEvent]) -> None:
        self.asked.set()
        with trio.move_on_after(10, shield=True):  # as in a worker thread
            await self.go.wait()
        await super().append(session, events)


@pytest.mark.parametrize(("messages", "size", "queued"), [(1000, 1, 64), (20, 1_000_000, 5)], ids=["many", "large"])
async def test_a_sender_waits_for_the_store(messages: int, size: int, queued: int) -> None:
    """The queue in front of the store is bounded, in events and in bytes."""
    store, made = Slow(), Made()

    @made.server.tool
    async def say(ctx: Context) -> None:
        for number in range(messages):
            await ctx.report_progress(number + 1, message="x" * size)

    async with served(HttpOptions(event_store=store), made) as (_, http, _):
        raw = Raw(http)
        await raw.initialize()
        async with raw.call("say") as r:
            events = Events(r)
            await events.next()
            await store.asked.wait()
            await trio.testing.wait_all_tasks_blocked(0.05)
            assert made.server.statistics().http[0].unstored == queued
            store.go.set()
            assert len(await events.messages()) == messages + 1


async def test_events_queued_for_the_store_when_their_session_ends_are_not_stored() -> None:
    """No client could ever ask for it."""
    store, made = Slow(), Made()
    async with served(HttpOptions(event_store=store), made) as (_, http, _), trio.open_nursery() as nursery:
        raw = Raw(http)
        await raw.initialize()
        async with raw.call("count", {"to": 100}) as r:
            events = Events(r)
            await events.next()
            await store.asked.wait()

            async def delete() -> None:
                assert (await http.delete("/mcp", headers=raw.headers())).status_code == 204
                assert made.server.statistics().sessions == 0
                assert len(store) == 0

            nursery.start_soon(delete)
            assert await events.messages() == []
            store.go.set()


def test_a_store_is_checked() -> None:
    with pytest.raises(TypeError, match="event_store"):
        HttpOptions(event_store=object())  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="stateless"):
        HttpOptions(event_store=MemoryEventStore(), stateless=True)


@pytest.mark.parametrize("last", ["1-9223372036854775808", f"{10**30}-1"])
async def test_an_event_id_that_no_store_can_hold_is_refused(tmp_path: Path, last: str) -> None:
    """SQLite has integers of 64 bits."""
    async with SqliteEventStore(tmp_path / "events.db") as store, session(HttpOptions(event_store=store)) as (_, raw):
        async with raw.listen(last) as r:
            assert r.status_code == 400
        raw.session = "unknown"
        async with raw.listen(last) as r:
            assert r.status_code == 404


async def test_a_long_stream_that_has_ended_comes_whole() -> None:
    """A store returns its events in pages; a client that had to come back for each would need hundreds of requests."""
    async with session(kept()) as (_, raw):
        async with raw.call("count", {"to": 3 * PAGE}) as r:
            events = Events(r)
            first = await events.next()
            messages = await events.messages()
        async with raw.listen(first.id) as r:
            assert await Events(r).messages() == messages
        assert "result" in messages[-1]


class Unconfirmed(MemoryEventStore):
    """A store that has an event before `append` returns: the second event can be read meanwhile."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.go_on = trio.Event(), trio.Event(), trio.Event()

    async def append(self, session: str, events: Sequence[StoredEvent]) -> None:
        await super().append(session, events)
        if events[0].stream == 1:
            (self.first if events[0].number == 1 else self.second).set()
            if events[0].number == 2:
                await self.go_on.wait()

    async def after(self, session: str, stream: int, number: int) -> Sequence[StoredEvent]:
        if (stream, number) == (1, 0):
            await self.second.wait()
        return await super().after(session, stream, number)


async def test_what_the_store_has_not_yet_confirmed_is_not_sent() -> None:
    """The store may fail yet. (Another process may have sent it: an event that was sent is never called unknown.)"""
    store = Unconfirmed()
    async with session(HttpOptions(event_store=store)) as (made, raw):

        @made.server.tool
        async def twice(ctx: Context) -> str:
            await ctx.report_progress(1)
            await store.first.wait()
            await ctx.report_progress(2)
            return "done"

        async with raw.call("twice") as r:
            assert (await Events(r).message())["params"]["progress"] == 1
        async with raw.listen("1-0") as r:
            events = Events(r)
            assert (await events.message())["params"]["progress"] == 1
            with trio.move_on_after(0.1):
                pytest.fail(f"{await events.message()} was sent")
        async with raw.listen("1-2") as r:
            assert r.status_code == 200
            store.go_on.set()
            (answer,) = await Events(r).messages()
        async with raw.listen("1-1") as r:
            assert [each.get("method") for each in await Events(r).messages()] == ["notifications/progress", None]
        assert answer["result"]["structuredContent"] == {"result": "done"}
