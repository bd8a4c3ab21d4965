"""Sessions that several processes serve: any of them takes any request of any session.

The processes are two servers with one file; `tests/server/processes` has real ones.
"""

from __future__ import annotations

import itertools
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, AsyncExitStack, asynccontextmanager, closing, suppress
from functools import partial
from pathlib import Path
from typing import Any, cast

import httpx
import pytest
import trio
import trio.lowlevel
import trio.testing
from pydantic_core import from_json, to_json

from tests.http_peer import LATEST, Events, Raw
from tests.peer import ME
from tests.redis_server import redis_server
from tests.server.http.harness import Made, served
from tests.waiting import eventually
from trio_mcp import Context, HttpOptions, TrioMcpError
from trio_mcp.http.server.legacy import endpoint, session, sharing
from trio_mcp.http.server.legacy.numbered_stream import NumberedStream
from trio_mcp.http.sse import COMMENT
from trio_mcp.server import changes
from trio_mcp.server.context import ServedContext
from trio_mcp.server.processes.child import Inherited
from trio_mcp.stores import MemoryStores, SqliteStores, StaleWriter, StoreBusy, StoreError, Stores, ValkeyStores
from trio_mcp.stores.contract import LEASE, LOOK
from trio_mcp.stores.listeners import TopicListener, TopicListeners
from trio_mcp.stores.session_store import SessionStore

pytestmark = pytest.mark.legacy

LAMP = "desk://lamp"

HELLO = {"protocolVersion": LATEST, "capabilities": {}, "clientInfo": ME}

Place = Callable[[], Stores]
"""Returns stores that all share what they keep."""


class SharedMemory(MemoryStores):
    """Shared by the servers in this process, each of which looks at it from time to time, as processes do."""

    shared = True

    def listen(self, topic: str, *, look: float = LOOK) -> AbstractContextManager[TopicListener]:
        return self._listeners.listen(topic, lambda: min(look, self._until_lost()))


@pytest.fixture(
    params=[
        pytest.param("memory", marks=pytest.mark.long),  # tests/stores compares it with the others
        "sqlite",
        pytest.param("valkey", marks=pytest.mark.redis),
    ]
)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    if request.param == "memory":
        memory = SharedMemory()
        yield lambda: memory
    elif request.param == "sqlite":
        yield lambda: SqliteStores(tmp_path / "desk.db")
    else:
        with redis_server() as engine:
            yield lambda: ValkeyStores(engine.url, prefix="desk")


class Pair:
    """Two servers with one file, and a client of one session that talks to both."""

    def __init__(self, made: list[Made], raws: list[Raw]) -> None:
        self.made = made
        self.one, self.two = raws

    async def initialize(self, revision: str | None = None, **capabilities: Any) -> None:
        """Open the session at the first server."""
        await self.one.initialize(*([revision] if revision else ()), **capabilities)
        self.two.session, self.two.revision = self.one.session, self.one.revision


def make(place: Place) -> Made:
    made = Made(stores=place())

    @made.server.resource(LAMP)
    async def lamp() -> str:
        return "on"

    @made.server.resource("shelf://{number}")
    async def shelf(number: int) -> int:
        return number

    @made.server.tool
    async def ask(ctx: Context) -> str:
        try:
            return f"it was {await ctx.list_roots()}"
        except TrioMcpError as exc:
            return f"it was {type(exc).__name__}: {exc}"

    @made.server.tool
    async def pace(ctx: Context, steps: int = 1) -> None:
        await made.go.wait()
        for step in range(steps):
            await ctx.report_progress(step + 1)
        await made.finished.wait()

    @made.server.tool
    async def tell(ctx: Context) -> None:
        assert isinstance(ctx, ServedContext)
        await ctx.report_progress(1)
        await made.go.wait()
        params = {"level": "error", "data": "once"}
        await ctx.session.send_notification("notifications/message", params)
        await ctx.report_progress(2)

    @made.server.tool
    async def leave(ctx: Context) -> str:
        assert ctx.close_stream()
        await made.go.wait()
        return "left"

    @made.server.tool
    async def note(ctx: Context, text: str) -> None:
        await ctx.log("warning", text)

    return made


@asynccontextmanager
async def pair(place: Place, **arguments: Any) -> AsyncIterator[Pair]:
    async with AsyncExitStack() as stack:
        made = [make(place), make(place)]
        https = [(await stack.enter_async_context(served(made=each, **arguments)))[1] for each in made]
        yield Pair(made, [Raw(http) for http in https])


@asynccontextmanager
async def opened(place: Place, revision: str | None = None, **arguments: Any) -> AsyncIterator[Pair]:
    """Yield a pair with a session."""
    async with pair(place, **arguments) as both:
        await both.initialize(revision, elicitation={})
        yield both


def message_of(response: httpx.Response) -> Any:
    """Return the response to a request, which is the last event of a stream if it was slow."""
    assert response.status_code == 200, response.text
    if response.headers["content-type"] == "application/json":
        return response.json()
    return from_json(response.text.rstrip().rpartition("data: ")[2])


REVISIONS = ["2025-03-26", "2025-06-18", "2025-11-25"]


@pytest.mark.parametrize("revision", REVISIONS)
async def test_any_process_serves_a_request(place: Place, revision: str) -> None:
    async with opened(place, revision) as both:
        for raw in (both.two, both.one, both.two):
            async with raw.call("add", {"a": 1, "b": 2}) as r:
                await r.aread()
                assert message_of(r)["result"]["content"][0]["text"] == "3"


async def test_after_a_delete_every_process_refuses_the_session_at_once(place: Place) -> None:
    async with opened(place) as both:
        assert (await both.two.post("ping")).status_code == 200  # the second process has a copy now
        deleted = await both.one.http.delete("/mcp", headers=both.one.headers())
        assert deleted.status_code == 204
        for raw in (both.two, both.one):
            assert (await raw.post("ping")).status_code == 404
            assert (await raw.notify("notifications/roots/list_changed")).status_code == 404
            async with raw.listen() as r:
                assert r.status_code == 404
        again = await both.two.http.delete("/mcp", headers=both.two.headers())
        assert again.status_code == 404


async def test_a_session_that_was_never_opened_is_unknown(place: Place) -> None:
    async with pair(place) as both:
        both.one.session = "x" * 43
        assert (await both.one.post("ping")).status_code == 404


async def test_a_delete_ends_what_other_processes_run(place: Place) -> None:
    async with opened(place) as both, both.two.call("wait", {"progress": 1}) as r:
        await Events(r).message()
        await eventually(lambda: both.made[1].started.is_set())
        await both.one.http.delete("/mcp", headers=both.one.headers())
        await both.made[1].cancelled.wait()


async def test_an_answer_reaches_the_process_that_asked(place: Place) -> None:
    async with opened(place) as both, both.one.call("greet") as r:
        events = Events(r)
        question = await events.message()
        assert question["method"] == "elicitation/create"
        answer = {"jsonrpc": "2.0", "id": question["id"], "result": {"action": "accept", "content": {"name": "Ann"}}}
        assert (await both.two.send(answer)).status_code == 202
        assert (await events.message())["result"]["content"][0]["text"] == "Hello, Ann"


async def test_ids_of_requests_differ_in_all_processes(place: Place) -> None:
    async with opened(place) as both:
        ids = set()
        for number, raw in enumerate((both.one, both.two, both.one)):
            async with raw.call("greet", id=10 + number) as r:
                question = await Events(r).message()
                ids.add(question["id"])
        assert len(ids) == 3


async def test_a_cancellation_reaches_the_process_that_runs_the_request(place: Place) -> None:
    async with opened(place) as both, both.one.call("wait", id=7) as r:
        await eventually(lambda: both.made[0].started.is_set())
        sent = await both.two.notify("notifications/cancelled", {"requestId": 7})
        assert sent.status_code == 202
        await both.made[0].cancelled.wait()
        assert await Events(r).messages() == []


async def test_a_stream_is_resumed_in_another_process(place: Place) -> None:
    """Resumability and Redelivery: each event once, in order, while the first process still runs the request."""
    async with opened(place) as both:
        async with both.one.call("wait", {"progress": 3}) as r:
            events = Events(r)
            first = [await events.next() for _ in range(2)]
        async with both.two.listen(first[-1].id) as r:
            events = Events(r)
            progress = [(await events.message())["params"]["progress"] for _ in range(2)]
            both.made[0].go.set()
            response = await events.message()
            assert (progress, response["result"]["content"][0]["text"]) == ([2, 3], "done")
            assert await events.messages() == []  # the stream ends with the response


async def test_what_a_request_reads_late_does_not_replace_what_another_one_has_learned(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the session would be as before the handshake for a moment, and the question be refused."""
    async with opened(place) as both:
        assert (await both.two.post("ping")).status_code == 200
        store, go, read = both.made[1].server._core.stores.sessions, trio.Event(), trio.Event()  # noqa: SLF001
        really = store.session

        async def session(key: str, **options: Any) -> Any:
            found = await really(key, **options)
            if not read.is_set():
                read.set()
                await go.wait()
            return found

        monkeypatch.setattr(store, "session", session)

        async def ask() -> None:
            async with both.two.call("greet", id=9) as r:
                assert (await Events(r).message())["method"] == "elicitation/create"

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
            await read.wait()
            await both.one.post("logging/setLevel", {"level": "error"})
            assert (await both.two.post("ping", id=10)).status_code == 200
            go.set()


async def test_a_process_that_ends_ends_the_streams_that_it_carries_for_others(place: Place) -> None:
    """They go on elsewhere, so requests of other processes do not hold up its end."""
    async with AsyncExitStack() as stack:
        made = [make(place), make(place)]
        ways = [await stack.enter_async_context(served(made=each, grace=1000)) for each in made]
        both = Pair(made, [Raw(http) for _, http, _ in ways])
        await both.initialize()
        async with both.one.call("wait", {"progress": 1}) as r:
            last = await Events(r).next()
        async with both.two.listen(last.id) as r:
            events = Events(r)
            assert "progress" in (await events.message())["method"]
            ways[1][2].set()
            with trio.fail_after(20):
                assert await events.messages() == []
        async with both.one.listen(last.id) as r:
            made[0].go.set()
            assert "result" in (await Events(r).messages())[-1]


async def test_a_stream_can_be_resumed_elsewhere_once_the_store_is_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Resumability and Redelivery: the store was away as the process wanted to note that it runs the request."""
    async with opened(lambda: SqliteStores(tmp_path / "desk.db")) as both:
        store = both.made[0].server._core.stores.sessions  # noqa: SLF001
        really, tries, noted = store.open, list[int](), trio.Event()

        async def open(key: str, token: str, stream: int, requests: Any) -> bool:
            tries.append(stream)
            if len(tries) < 3:
                await trio.lowlevel.checkpoint()
                raise StoreError("the file is locked")
            is_open = await really(key, token, stream, requests)
            noted.set()
            return bool(is_open)

        monkeypatch.setattr(store, "open", open)
        async with both.one.call("wait") as r:
            last = await Events(r).next()
        await noted.wait()
        async with both.two.listen(last.id) as r:
            events = Events(r)
            both.made[0].go.set()
            assert (await events.message())["result"]["content"][0]["text"] == "done"
        assert len(set(tries)) == 1


async def test_a_client_gets_no_id_of_a_stream_that_only_this_process_knows(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once the process has ended, no other one could tell the client that there will be no response."""

    async def away(*args: Any) -> bool:
        await trio.lowlevel.checkpoint()
        raise StoreError("the file is locked")

    async with AsyncExitStack() as stack:
        made = make(place)
        _, http, stop = await stack.enter_async_context(served(HttpOptions(grace=0.1), made=made))
        raw = Raw(http)
        await raw.initialize()
        monkeypatch.setattr(made.server._core.stores.sessions, "open", away)  # noqa: SLF001
        async with raw.call("wait") as r:
            text = r.aiter_text()
            assert await anext(text) == COMMENT.decode()  # the head has come
            stop.set()
            assert "".join([piece async for piece in text]) == ""


async def test_a_call_that_begins_as_its_process_ends_gets_an_error(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An event stream would give the client an id of what no process knows."""
    monkeypatch.setattr(session, "PRIMING_DELAY", 30.0)
    async with AsyncExitStack() as stack:
        made = make(place)
        _, http, stop = await stack.enter_async_context(served(HttpOptions(grace=0.1), made=made))
        raw = Raw(http)
        await raw.initialize()

        async def end() -> None:
            await made.started.wait()
            stop.set()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(end)
            async with raw.call("wait") as r:
                text = (await r.aread()).decode()
            assert (r.status_code, "the request got no response, and its outcome is unknown" in text) == (503, True)


@asynccontextmanager
async def ending(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[Pair, SessionStore, trio.Event, trio.Event]]:
    """Yield a pair with a session, the store of the first process, what ends that, and what is set when it has left."""
    async with AsyncExitStack() as stack:
        made, left = [make(place), make(place)], trio.Event()
        _, http, stop = await stack.enter_async_context(served(HttpOptions(grace=0.1), made=made[0]))
        both = Pair(made, [Raw(http), Raw((await stack.enter_async_context(served(made=made[1])))[1])])
        await both.initialize()
        store = made[0].server._core.stores.sessions  # noqa: SLF001
        leaves = store.leave

        async def leave(token: str) -> None:
            await leaves(token)
            left.set()

        monkeypatch.setattr(store, "leave", leave)
        yield both, store, stop, left


async def test_a_stream_that_is_noted_as_its_process_ends_gets_an_error(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its last message is stored, but it does not end with that."""
    async with ending(place, monkeypatch) as (both, store, stop, left):
        opens, streams = store.open, list[int]()

        async def open(key: str, token: str, stream: int, requests: Any) -> bool:
            streams.append(stream)
            stop.set()
            await trio.sleep(0.2)  # longer than the grace
            return bool(await opens(key, token, stream, requests))

        monkeypatch.setattr(store, "open", open)
        with suppress(httpx.HTTPError):
            async with both.one.call("wait", {"progress": 1}) as r:
                await r.aread()
        await left.wait()
        async with both.two.listen(f"{streams[0]}-0") as r:
            told = await Events(r).messages()
            assert [each.get("method") for each in told] == ["notifications/progress", None]
            assert told[-1]["error"]["message"] == sharing.LOST


async def test_what_runs_as_its_server_is_cancelled_gets_an_error(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its handlers hear of the end as soon as its sessions; what one has sent last is still to be stored."""
    made = [make(place), make(place)]
    store, asked = made[0].server._core.stores.sessions, trio.Event()  # noqa: SLF001
    really = store.append

    async def append(key: str, events: Any, *more: Any, **options: Any) -> Any:
        if not asked.is_set() and any(b"progress" in event.data for event in events):
            asked.set()
            await trio.sleep_forever()  # until the server is cancelled
        return await really(key, events, *more, **options)

    monkeypatch.setattr(store, "append", append)
    async with served(made=made[1]) as (_, lasting, _):
        async with served(made=made[0]) as (_, http, _):
            both = Pair(made, [Raw(http), Raw(lasting)])
            await both.initialize()
            async with both.one.call("wait", {"progress": 1}) as r:
                last = await Events(r).next()
                await asked.wait()
        async with both.two.listen(last.id) as r:
            told = await Events(r).messages()
        assert [each.get("method") for each in told] == ["notifications/progress", None]
        assert told[-1]["error"]["message"] == sharing.LOST


async def test_what_ran_in_a_session_that_fails_is_ended_in_all_processes(
    place: Place, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The process goes on, so no other one ends its streams."""
    copies, adds = list[sharing.SessionCopy](), sharing.Membership.add

    def add(self: sharing.Membership, copy: sharing.SessionCopy) -> int:
        copies.append(copy)
        return adds(self, copy)

    monkeypatch.setattr(sharing.Membership, "add", add)

    async def fail() -> None:
        await trio.lowlevel.checkpoint()
        raise RuntimeError("odd")

    async with opened(place) as both:
        async with both.one.call("wait") as r:
            last = await Events(r).next()
        copies[0].session.start_soon(fail)
        await copies[0].session.over.wait()
        async with both.two.listen(last.id) as r:
            (told,) = await Events(r).messages()
        assert told["error"]["message"] == sharing.LOST
        assert (await both.one.post("ping", id=9)).status_code == 200  # it is served by a new copy
    assert "an HTTP session failed" in caplog.text


async def test_a_response_is_stored_before_its_process_leaves(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those who leave end what is open with an error, which must not come in its place, or after it."""
    async with ending(place, monkeypatch) as (both, store, stop, left):
        really = store.append

        async def append(key: str, events: Any, *more: Any, **options: Any) -> Any:
            if any(b"done" in event.data for event in events):
                stop.set()
                await trio.sleep(0.2)  # longer than the grace
            return await really(key, events, *more, **options)

        monkeypatch.setattr(store, "append", append)
        with suppress(httpx.HTTPError):
            async with both.one.call("wait") as r:
                events = Events(r)
                last = await events.next()
                both.made[0].go.set()
                await events.messages()
        await left.wait()
        async with both.two.listen(last.id) as r:
            (told,) = await Events(r).messages()
            assert told["result"]["content"][0]["text"] == "done"


async def test_a_stream_is_closed_once_the_client_can_come_back(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sending Messages, 6: the server may close it "after the server has sent an SSE event with an event ID"."""
    async with opened(place) as both:
        store = both.made[0].server._core.stores.sessions  # noqa: SLF001
        really, tries = store.open, list[int]()

        async def open(key: str, token: str, stream: int, requests: Any) -> bool:
            tries.append(stream)
            if len(tries) < 3:
                await trio.lowlevel.checkpoint()
                raise StoreError("the file is locked")
            return bool(await really(key, token, stream, requests))

        monkeypatch.setattr(store, "open", open)
        async with both.one.call("leave") as r:
            events = Events(r)
            first = await events.next()
            assert await events.messages() == []
        assert len(tries) == 3
        async with both.two.listen(first.id) as r:
            both.made[0].go.set()
            assert (await Events(r).messages())[-1]["result"]["content"][0]["text"] == "left"


async def test_what_is_stored_on_a_stream_is_on_one_that_the_store_knows(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise no process would end the stream if this one died."""
    async with opened(place) as both:
        store = both.made[0].server._core.stores.sessions  # noqa: SLF001
        really, append, calls = store.open, store.append, list[str]()

        async def open(key: str, token: str, stream: int, requests: Any) -> bool:
            calls.append("open")
            if len(calls) == 1:
                await trio.lowlevel.checkpoint()
                raise StoreError("the file is locked")
            return bool(await really(key, token, stream, requests))

        async def appended(key: str, events: Any, *more: Any, **options: Any) -> Any:
            calls.extend("append" for event in events if b"progress" in event.data)
            return await append(key, events, *more, **options)

        monkeypatch.setattr(store, "open", open)
        monkeypatch.setattr(store, "append", appended)
        async with both.one.call("pace") as r:
            await eventually(lambda: calls)
            both.made[0].go.set()
            events = Events(r)
            assert not (await events.next()).data  # the event that only gives an id
            assert (await events.message())["method"] == "notifications/progress"
            both.made[0].finished.set()
            assert "result" in await events.message()
        assert calls == ["open", "open", "append"]


async def test_a_stream_that_has_ended_is_replayed_by_another_process(place: Place) -> None:
    async with opened(place) as both:
        async with both.one.call("count", {"to": 3}) as r:
            events = [event async for event in Events(r)]
        async with both.two.listen(events[0].id) as r:
            replayed = [event.id async for event in Events(r) if event.data]
        assert replayed == [event.id for event in events if event.data]


async def test_the_newest_get_carries_the_stream(place: Place) -> None:
    """Listening for Messages, 4: every message is sent on only one stream."""
    async with opened(place) as both:
        await both.one.post("resources/subscribe", {"uri": LAMP})
        async with both.one.listen() as older:
            older_events = Events(older)
            await older_events.next() if older.status_code != 200 else None
            async with both.two.listen() as newer:
                assert [event async for event in older_events if event.data] == []  # it ends
                both.made[0].server.notify_resource_updated(LAMP)
                assert (await Events(newer).message())["params"] == {"uri": LAMP}


async def test_a_change_is_told_by_the_process_that_carries_the_stream(place: Place) -> None:
    async with opened(place) as both, both.two.listen() as r:
        events = Events(r)
        await both.one.post("resources/subscribe", {"uri": LAMP})  # at the other process
        both.made[0].server.notify_resource_updated(LAMP)
        assert (await events.message())["params"] == {"uri": LAMP}
        await both.one.post("resources/unsubscribe", {"uri": LAMP})
        (run,) = both.made[1].server._core.settings.runs  # noqa: SLF001
        await eventually(lambda: not any(uri for _, uri in run.changes.topics))
        # The change may have been told twice: as it came, and as one since the subscription.
        both.made[1].server.notify_tools_changed()
        while (await events.message())["method"] != "notifications/tools/list_changed":
            pass
        both.made[1].server.notify_resource_updated(LAMP)
        both.made[1].server.notify_tools_changed()
        assert (await events.message())["method"] == "notifications/tools/list_changed"


async def test_a_change_while_no_process_carries_the_stream_is_told_later(place: Place) -> None:
    async with opened(place) as both:
        await both.one.post("resources/subscribe", {"uri": LAMP})
        async with both.one.listen():
            pass
        both.made[0].server.notify_resource_updated(LAMP)
        async with both.two.listen() as r:
            assert (await Events(r).message())["params"] == {"uri": LAMP}


async def test_a_client_may_watch_as_many_resources_as_with_one_process(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each counts once, whichever process the subscription met, and whether this one carries the stream or not."""
    monkeypatch.setattr(changes, "MAX_SUBSCRIPTIONS", 8)

    async def watch(raw: Raw, number: int) -> Any:
        return message_of(await raw.post("resources/subscribe", {"uri": f"shelf://{number}"}))

    async with opened(place) as both:
        for number in range(4):
            assert (await watch((both.one, both.two)[number % 2], number))["result"] == {}
        async with both.one.listen():
            for number in range(4, 8):
                assert (await watch(both.one, number))["result"] == {}
            for raw in (both.one, both.two):
                assert "at most 8" in (await watch(raw, 8))["error"]["message"]


async def test_the_log_level_holds_in_all_processes(place: Place) -> None:
    async with opened(place) as both:
        await both.one.post("logging/setLevel", {"level": "error"})
        async with both.two.call("note", {"text": "quiet"}) as r:
            methods = [message.get("method") for message in await Events(r).messages()]
        await both.two.post("logging/setLevel", {"level": "info"})
        async with both.one.call("note", {"text": "loud"}) as r:
            methods += [message.get("method") for message in await Events(r).messages()]
        assert methods == [None, "notifications/message", None]


async def test_a_process_forgets_an_unused_session_that_lives_on(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint, "COPY_TIMEOUT", 0.2)
    async with opened(place) as both:
        statistics = lambda: [each() for run in both.made[0].server._core.settings.runs for each in run.endpoints]  # noqa: E731, SLF001
        await eventually(lambda: not statistics()[0].sessions)
        async with both.one.call("add", {"a": 1, "b": 2}) as r:
            assert r.status_code == 200


async def test_a_full_mailbox_is_a_503(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process that asks does not read its mailbox."""
    async with opened(place) as both, both.one.call("greet") as r:
        question = await Events(r).message()
        store = both.made[1].server._core.stores.sessions  # noqa: SLF001
        monkeypatch.setattr(store, "send", partial(store.send, limit=1))

        async def read_nothing(*_: object) -> None:
            await trio.lowlevel.checkpoint()

        monkeypatch.setattr(sharing.Membership, "_read_letters", read_nothing)
        await trio.sleep(0.05)
        big = {"jsonrpc": "2.0", "id": question["id"], "result": {"action": "accept", "content": {"name": "x" * 100}}}
        assert (await both.two.send(big)).status_code == 202  # a single message may be larger
        refused = await both.two.send(big)
        assert refused.status_code == 503
        assert refused.headers["retry-after"] == "1"
        assert b"too many" in to_json(refused.json())


async def test_a_process_whose_lease_another_one_has_taken_gives_up(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it was running ends with an error on the stream that the client resumes, and the session lives on."""
    monkeypatch.setattr(sharing, "LEASE", 2.0)
    monkeypatch.setattr(sharing, "LOOK", 0.1)
    async with pair(place) as both:
        store = both.made[0].server._core.stores.sessions  # noqa: SLF001
        join, stay, members = store.join, store.stay, []

        async def joined(*, lease: float) -> Any:
            members.append(await join(lease=lease))
            return members[-1]

        async def stayed(token: str, **given: Any) -> None:
            if token != members[0].token:  # the first process is as if it had been stopped
                await stay(token, **given)

        monkeypatch.setattr(store, "join", joined)
        await both.initialize()
        assert (await both.two.post("ping")).status_code == 200  # the second process is a member, too
        async with both.one.call("wait", {"progress": 1}) as r:
            events = Events(r)
            last = await events.next()
            monkeypatch.setattr(store, "stay", stayed)
            await both.made[0].cancelled.wait()
        async with both.two.listen(last.id) as r:
            messages = await Events(r).messages()
        assert messages[-1]["error"]["message"] == sharing.LOST
        monkeypatch.undo()
        assert (await both.one.post("ping")).status_code == 200


async def test_a_lease_is_renewed_however_many_streams_there_are_to_end(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store was away, and may be away again before all are ended: then another process would take the lease."""
    monkeypatch.setattr(sharing, "LEASE", 1.0)
    async with opened(place) as both:
        store = both.made[0].server._core.stores.sessions  # noqa: SLF001
        append, stay, acts = store.append, store.stay, list[str]()

        async def away(*args: Any, **given: Any) -> Any:
            await trio.lowlevel.checkpoint()
            raise StoreError("away")

        async def slow(*args: Any, **given: Any) -> Any:
            acts.append("end")
            await trio.sleep(0.2)
            return await append(*args, **given)

        async def stayed(*args: Any, **given: Any) -> None:
            acts.append("stay")
            await stay(*args, **given)

        monkeypatch.setattr(store, "append", away)
        for id in range(12):
            await both.one.post("tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}}, id=id)
        monkeypatch.setattr(store, "append", slow)
        monkeypatch.setattr(store, "stay", stayed)
        await eventually(lambda: acts.count("end") == 12)
    first, last = acts.index("end"), len(acts) - acts[::-1].index("end")
    assert "stay" in acts[first:last]


async def test_streams_that_are_noted_while_a_lease_is_renewed_do_no_harm(monkeypatch: pytest.MonkeyPatch) -> None:
    """What waits to be noted may be gone after any wait."""
    async with trio.open_nursery() as nursery:
        membership, noted = sharing.Membership(SharedMemory(), nursery, lambda: 0), list[object]()

        class Copy:
            async def note(self, stream: object, requests: object) -> None:
                await trio.lowlevel.checkpoint()
                membership.unnoted.clear()
                noted.append(stream)

        async def renew(member: object) -> None:
            await trio.lowlevel.checkpoint()
            membership.unnoted.clear()

        monkeypatch.setattr(membership, "_renew", renew)
        stream = NumberedStream(1, {1})
        membership.unnoted["key", 1] = cast("Any", Copy()), stream
        await membership._note_streams(cast("Any", None))  # noqa: SLF001
        assert noted == [stream]
        nursery.cancel_scope.cancel()


async def test_a_lease_that_is_lost_is_one_line_in_the_log(
    place: Place, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever finds it, here a response that can't be stored any more."""
    async with pair(place) as both:
        store = both.made[0].server._core.stores.sessions  # noqa: SLF001
        join, members = store.join, []

        async def joined(*, lease: float) -> Any:
            members.append(await join(lease=lease))
            return members[-1]

        monkeypatch.setattr(store, "join", joined)
        await both.initialize()
        async with both.one.call("wait", {"progress": 1}) as r:
            events = Events(r)
            await events.message()
            await store.leave(members[0].token)
            both.made[0].go.set()
            await events.messages()
        assert (await both.one.post("ping")).status_code == 200
    said = [each for each in caplog.records if each.levelname in ("WARNING", "ERROR")]
    assert [each.exc_info for each in said] == [None]
    assert "it starts again" in said[0].message


@pytest.mark.redis
@pytest.mark.parametrize("finds", ["a request", "another call", "nothing"])
async def test_a_process_serves_new_sessions_as_soon_as_it_finds_that_the_engine_has_lost_all(
    finds: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Each process learns it once; a call of a new session gets its response, and no lease counts as lost."""
    with redis_server() as engine:
        async with opened(lambda: ValkeyStores(engine.url, prefix="desk")) as both:
            assert (await both.two.post("ping")).status_code == 200  # both processes are members
            engine.ask("flushall")
            for made, raw in zip(both.made, (both.one, both.two), strict=True):
                if finds == "a request":
                    assert (await raw.post("ping")).status_code in (404, 503)
                elif finds == "another call":  # the one that looks for changes may have been before
                    with suppress(StoreError):
                        await made.server._core.stores.task("none")  # noqa: SLF001
            for _ in range(3):  # each process may refuse one request
                both.one.session = both.one.revision = None
                refused = await both.one.post("initialize", HELLO, id=0)
                if refused.status_code == 200:
                    break
                assert refused.status_code == 503
            await both.initialize()
            for number, raw in enumerate([both.one, both.two] * 2):
                answered = await raw.post("tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}}, id=number)
                if answered.status_code == 503 and finds == "nothing" and raw is both.two:
                    continue
                assert message_of(answered)["result"]["content"][0]["text"] == "3"
    lost = [each.message for each in caplog.records if "lost" in each.message or "silent" in each.message]
    ours = [each for each in lost if each.startswith("the stores have lost all that was kept there")]
    assert len(ours) == 2
    assert not [each for each in lost if "silent" in each or "lease" in each]


BROKEN: dict[str, tuple[str | None, Any]] = {
    "no object": (None, {"result": 5}),
    "both": (None, {"result": {}, "error": {"code": 1, "message": "no"}}),
    "no code": (None, {"error": {"message": "no"}}),
    "another version": (None, {"jsonrpc": "1.0", "result": {}}),
    "no JSON": (None, '{"jsonrpc": "2.0", "id": %d, "result": {"roots": NaN}}'),
    "in a batch": ("2025-03-26", [{"result": 5}]),
    "a wrong type": (None, {"result": {"roots": 5}}),
    "an error": (None, {"error": {"code": 1, "message": "no"}}),
}


@pytest.mark.parametrize("name", BROKEN)
async def test_a_malformed_response_fails_the_call_of_any_process_alike(place: Place, name: str) -> None:
    revision, broken = BROKEN[name]
    told = []
    async with pair(place) as both:
        await both.initialize(revision, roots={})
        for raw in (both.one, both.two):
            async with both.one.call("ask") as r:
                events = Events(r)
                question = await events.message()
                items = broken if isinstance(broken, list) else [broken]
                if isinstance(broken, str):
                    data = (broken % question["id"]).encode()
                else:
                    given = [{"jsonrpc": "2.0", "id": question["id"], **item} for item in items]
                    data = to_json(given if isinstance(broken, list) else given[0])
                fields = {**raw.headers(), "content-type": "application/json"}
                answered = await raw.http.post("/mcp", content=data, headers=fields)
                outcome = await events.message()
                told.append((answered.status_code, outcome.get("result") or outcome["error"]))
    assert told[0] == told[1]


async def test_a_process_ends_although_the_file_is_locked(tmp_path: Path) -> None:
    """What it has still to store is given up in time; the store itself would wait for longer than this test may."""
    path = tmp_path / "desk.db"
    path.touch(0o600)
    with closing(sqlite3.connect(path, isolation_level=None)) as locking:
        made = make(lambda: SqliteStores(path, timeout=600))
        async with AsyncExitStack() as stack:
            _, http, stop = await stack.enter_async_context(served(HttpOptions(grace=0.1), made=made))
            for number in range(3):
                raw = Raw(http)
                await raw.initialize()
                r = await stack.enter_async_context(raw.call("wait", {"progress": 1}, id=number))
                await Events(r).message()
            locking.execute("BEGIN IMMEDIATE")
            stop.set()
            await made.cancelled.wait()


@pytest.mark.parametrize("supervised", [False, True])
async def test_that_sessions_over_http_sse_stay_is_said_where_several_processes_serve(
    place: Place, supervised: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """They are the children of a supervisor, or on several machines; a file may well have a single process."""
    made = make(place)
    if supervised:
        secret = bytes(32)
        made.server._core.inherited = Inherited(secret, secret, 1, [], grace=5.0, control=-1, reports=-1)  # noqa: SLF001
    async with served(HttpOptions(sse_path="/sse"), made=made):
        pass
    said = [each.message for each in caplog.records if "HTTP+SSE" in each.message]
    assert len(said) == (supervised or place().remote)


async def test_a_call_takes_two_round_trips(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "PRIMING_DELAY", 30.0)  # however slow the machine
    async with opened(place) as both:
        store, trips = both.made[0].server._core.stores.sessions, []  # noqa: SLF001
        for name in ("session", "append", "open", "change", "send", "carry", "after"):
            method = getattr(store, name)

            async def counted(*args: Any, name: str = name, method: Any = method, **kwargs: Any) -> Any:
                trips.append(name)
                return await method(*args, **kwargs)

            monkeypatch.setattr(store, name, counted)
        async with both.one.call("add", {"a": 1, "b": 2}) as r:
            await r.aread()
        assert trips == ["session", "append"]


async def test_a_session_that_could_not_be_read_for_one_request_is_read_for_the_next(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the next one would get a 404, upon which its client gives the session up."""
    async with opened(place) as both:
        store, statuses = both.made[1].server._core.stores.sessions, []  # noqa: SLF001
        read, asked, go = store.session, [], trio.Event()

        async def fails_once(key: str, **given: Any) -> Any:
            asked.append(key)
            if len(asked) == 1:
                await go.wait()
                raise StoreError("away")
            return await read(key, **given)

        async def listen() -> None:
            async with both.two.listen() as r:
                statuses.append(r.status_code)

        monkeypatch.setattr(store, "session", fails_once)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(listen)
            await eventually(lambda: asked)
            nursery.start_soon(listen)
            await trio.sleep(0.1)  # so that the second one waits, too; if it does not yet, it is served anyway
            go.set()
        assert sorted(statuses) == [200, 503]


async def test_a_function_that_has_begun_goes_on_while_the_store_is_away(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A 503 would let the client repeat the call."""

    async def away(*args: Any) -> bool:
        await trio.lowlevel.checkpoint()
        raise StoreError("away")

    async with opened(place) as both:
        store = both.made[0].server._core.stores.sessions  # noqa: SLF001
        monkeypatch.setattr(store, "open", away)
        async with both.one.call("wait") as r:
            assert r.status_code == 200
            both.made[0].go.set()
            assert (await Events(r).message())["result"]["content"][0]["text"] == "done"


async def test_a_session_that_ends_elsewhere_as_a_function_begins_ends_it(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its process learns it as it notes the request in the store."""
    monkeypatch.setattr(session, "PRIMING_DELAY", 0.5)
    async with opened(place) as both, trio.open_nursery() as nursery:

        async def end() -> None:
            await both.made[0].started.wait()
            await both.two.http.delete("/mcp", headers=both.two.headers())

        nursery.start_soon(end)
        async with both.one.call("wait") as r:
            assert r.status_code in (200, 404, 503)
            await r.aread()
        await both.made[0].cancelled.wait()


async def test_a_question_lives_on_while_another_process_carries_its_stream(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process that has asked hears nothing of the client until it has an answer."""
    monkeypatch.setattr(endpoint, "COPY_TIMEOUT", 0.2)
    async with opened(place) as both:
        async with both.one.call("greet") as r:
            events = Events(r)
            last = await events.next()
            question = await events.message()
        async with both.two.listen(last.id) as r:
            events = Events(r)
            assert await events.message() == question
            await trio.sleep(0.8)  # longer than the timeout of a copy: the question must not have failed
            answer = {"action": "accept", "content": {"name": "Ann"}}
            await both.two.send({"jsonrpc": "2.0", "id": question["id"], "result": answer})
            assert (await events.message())["result"]["content"][0]["text"] == "Hello, Ann"


async def test_a_question_fails_once_the_client_has_left_all_processes(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A function that waits for an answer would keep the session forever."""
    monkeypatch.setattr(endpoint, "COPY_TIMEOUT", 0.1)
    async with opened(place, session_timeout=2.0) as both:
        async with both.one.call("greet") as r:
            await Events(r).message()
        (run,) = both.made[0].server._core.settings.runs  # noqa: SLF001
        await eventually(lambda: not [each for each in run.endpoints if each().unanswered])


async def test_a_response_that_could_not_be_stored_is_an_error_where_its_stream_is_resumed(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process that has run the request ends the stream once the store is back; its client would wait forever."""
    async with opened(place) as both:
        async with both.one.call("wait", {"progress": 1}) as r:
            last = await Events(r).next()
        store, refused = both.made[0].server._core.stores.sessions, []  # noqa: SLF001
        append = store.append

        async def away(*args: Any, **given: Any) -> Any:
            await trio.lowlevel.checkpoint()
            refused.append(args)
            raise StoreError("away")

        async with both.two.listen(last.id) as r:
            events = Events(r)
            assert (await events.message())["params"]["progress"] == 1
            monkeypatch.setattr(store, "append", away)
            both.made[0].go.set()
            await eventually(lambda: len(refused) > 1)  # the response, and the end of the stream
            monkeypatch.setattr(store, "append", append)
            # Any letter wakes the process, which otherwise looks from time to time.
            await both.two.notify("notifications/cancelled", {"requestId": 1})
            error = (await events.message())["error"]
            assert error["message"] == "the request got no response: the event store failed"
            assert await events.messages() == []


@pytest.mark.parametrize("resumed", ["there", "elsewhere"])
@pytest.mark.parametrize("away", ["for a moment", "for longer"])
async def test_a_response_that_was_stored_without_a_word_comes_alone(
    place: Place, monkeypatch: pytest.MonkeyPatch, resumed: str, away: str
) -> None:
    """A store that falls silent may have stored it. A request gets one response: no error may follow that one."""
    async with opened(place) as both:
        async with both.one.call("wait", {"progress": 1}) as r:
            last = await Events(r).next()
        store, failed = both.made[0].server._core.stores.sessions, []  # noqa: SLF001
        append = store.append

        async def silent(*args: Any, **given: Any) -> Any:
            if not failed:
                await append(*args, **given)
            elif away == "for a moment":
                monkeypatch.setattr(store, "append", append)
                return await append(*args, **given)
            await trio.lowlevel.checkpoint()
            failed.append(args)
            raise StoreError("silent")

        monkeypatch.setattr(store, "append", silent)
        both.made[0].go.set()
        await eventually(lambda: len(failed) > (away == "for longer"))
        monkeypatch.setattr(store, "append", append)
        await both.two.notify("notifications/cancelled", {"requestId": 1})  # any letter wakes the process
        await eventually(lambda: not both.made[0].server.statistics().http[0].unanswered)
        for _ in range(2):
            async with (both.one if resumed == "there" else both.two).listen(last.id) as r:
                _, *messages = await Events(r).messages()
                assert [set(each) & {"result", "error"} for each in messages] == [{"result"}]


@pytest.mark.parametrize("lost", [False, True], ids=["the response comes", "the response is lost"])
async def test_a_client_may_come_back_with_an_event_that_was_stored_without_a_word(
    place: Place, monkeypatch: pytest.MonkeyPatch, lost: bool
) -> None:
    """It has got it from another process, which has it from the store."""
    async with opened(place) as both:
        made, store = both.made[0], both.made[0].server._core.stores.sessions  # noqa: SLF001
        append, failed = store.append, trio.Event()

        async def silent(*args: Any, **given: Any) -> Any:
            await append(*args, **given)
            failed.set()
            raise StoreError("silent")

        async def refuses(key: str, events: Any, *args: Any, **given: Any) -> Any:
            if b"result" in events[0].data:
                raise StoreError("full")
            return await append(key, events, *args, **given)

        async with both.one.call("pace") as r:
            first = await Events(r).next()
        async with both.two.listen(first.id) as r:
            events = Events(r)
            await events.next()
            monkeypatch.setattr(store, "append", silent)
            made.go.set()
            last = await events.next()
        await failed.wait()
        await eventually(lambda: not made.server.statistics().http[0].unstored)
        monkeypatch.setattr(store, "append", refuses if lost else append)
        if lost:
            made.finished.set()
            await eventually(lambda: not made.server.statistics().http[0].unanswered)
        async with both.one.listen(last.id) as r:
            assert r.status_code == 200
            made.finished.set()
            (answer,) = await Events(r).messages()
        for raw in (both.one, both.two):
            async with raw.listen(first.id) as r:
                progress, again = await Events(r).messages()
            assert (progress["method"], again) == ("notifications/progress", answer)
        assert ("error" if lost else "result") in answer


async def test_what_the_store_numbers_is_stored_once_even_if_other_messages_are_tried_again(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An attempt that failed may have stored it: a client must not get the same message twice."""
    async with opened(place) as both:
        made, store = both.made[0], both.made[0].server._core.stores.sessions  # noqa: SLF001
        append, tried, go = store.append, list[str](), trio.Event()

        async def silent(key: str, events: Any, *args: Any, **given: Any) -> Any:
            tried.append(key)
            await go.wait()
            numbers = await append(key, events, *args, **given)
            if len(tried) == 2:
                raise StoreError("silent")
            return numbers

        monkeypatch.setattr(store, "append", silent)
        async with both.one.call("tell") as r:
            await eventually(lambda: tried)
            made.go.set()
            await eventually(lambda: made.server.statistics().http[0].unstored > 2)
            go.set()
            await Events(r).messages()
        await eventually(lambda: not made.server.statistics().http[0].unstored)
        assert len([event for event in await store.after(tried[0], 0, 0) if b"once" in event.data]) == 1


async def test_a_stream_ends_in_the_store_with_its_response_and_not_before(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If its process died in between, no other one would end it with an error, and the client would wait forever."""
    async with opened(place) as both:
        made, store = both.made[0], both.made[0].server._core.stores.sessions  # noqa: SLF001
        append, calls, newest, ended = store.append, itertools.count(1), dict[int, bytes](), list[bytes]()

        async def slow(key: str, events: Any, *args: Any, **given: Any) -> Any:
            waiting = made.server.statistics().http[0].unstored
            match next(calls):
                case 1:  # the other messages are handed over together
                    await eventually(lambda: made.server.statistics().http[0].unstored == 6)
                case 2:  # the responses come while the store has these in hand; then they are handed over one by one
                    made.finished.set()
                    await eventually(lambda: made.server.statistics().http[0].unstored == waiting + 2)
                    raise StoreBusy("locked")
            newest.update({event.stream: event.data for event in events})
            ended.extend(newest[stream] for stream in given["ended"])
            return await append(key, events, *args, **given)

        steps = {"steps": 3}
        async with both.one.call("pace", steps, id=1) as first, both.one.call("pace", steps, id=2) as second:
            streams = [Events(first), Events(second)]
            for stream in streams:
                await stream.next()  # the store knows of it
            monkeypatch.setattr(store, "append", slow)
            made.go.set()
            for stream in streams:
                assert "result" in (await stream.messages())[-1]
        assert [b"result" in data for data in ended] == [True, True]


async def test_a_response_that_is_lost_while_its_request_is_noted_is_an_error_all_the_same(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The note comes after the failure: the stream must not end as if it had its response."""
    async with opened(place) as both:
        made, store = both.made[0], both.made[0].server._core.stores.sessions  # noqa: SLF001
        really, append, noted, go = store.open, store.append, list[int](), trio.Event()

        async def slow(key: str, token: str, stream: int, requests: Any) -> Any:
            noted.append(stream)
            if len(noted) == 1:
                await trio.lowlevel.checkpoint()
                raise StoreError("away")
            await go.wait()
            return await really(key, token, stream, requests)

        async def away(*args: Any, **given: Any) -> Any:
            await trio.lowlevel.checkpoint()
            raise StoreError("away")

        async def look() -> bool:
            await both.two.notify("notifications/cancelled", {"requestId": 7})  # any letter wakes the process
            return len(noted) == 2

        monkeypatch.setattr(store, "open", slow)
        async with both.one.call("wait"):
            pass
        await eventually(lambda: not made.server.statistics().http[0].exchanges)
        await eventually(look)
        monkeypatch.setattr(store, "append", away)
        made.go.set()
        await eventually(lambda: not made.server.statistics().http[0].unanswered)
        await trio.testing.wait_all_tasks_blocked(0.05)
        go.set()
        await trio.testing.wait_all_tasks_blocked(0.05)
        monkeypatch.setattr(store, "append", append)
        async with both.two.listen(f"{noted[0]}-0") as r:
            (answer,) = await Events(r).messages()
        assert answer["error"]["message"] == "the request got no response: the event store failed"


FORGED: list[tuple[str, dict[str, Any]]] = [
    ("of no process", {"id": 7_000_000_001, "result": {}}),
    ("of no process that there can be", {"id": 10**40, "result": {}}),
    ("an error of no process that there can be", {"id": 10**40, "error": {"code": 1, "message": "no"}}),
    ("of a process, and not asked", {"id": 1_000_000_900, "result": {}}),
    ("below zero", {"id": -(10**40), "result": {}}),
    ("progress", {"method": "notifications/progress", "params": {"progressToken": 10**40, "progress": 1}}),
    ("cancellation", {"method": "notifications/cancelled", "params": {"requestId": 10**40}}),
]


@pytest.mark.parametrize("message", [each for _, each in FORGED], ids=[name for name, _ in FORGED])
async def test_a_message_for_what_no_process_runs_does_no_harm(place: Place, message: dict[str, Any]) -> None:
    async with opened(place) as both, both.one.call("greet", id=5) as r:
        events = Events(r)
        question = await events.message()
        assert (await both.two.send({"jsonrpc": "2.0", **message})).status_code == 202
        answer = {"action": "accept", "content": {"name": "Ann"}}
        await both.two.send({"jsonrpc": "2.0", "id": question["id"], "result": answer})
        assert (await events.message())["result"]["content"][0]["text"] == "Hello, Ann"


STRANGE: list[tuple[str, dict[str, Any]]] = [
    ("answer", {"id": 0, "result": {"action": "accept", "content": {"name": "Eve"}}}),
    ("error", {"id": 0, "error": {"code": 1, "message": "no"}}),
    ("malformed answer", {"id": 0, "result": 5}),
    ("cancellation", {"method": "notifications/cancelled", "params": {"requestId": 5}}),
    ("progress", {"method": "notifications/progress", "params": {"progressToken": 0, "progress": 1}}),
]
"""Messages of one session about what a function of another one does; the id of the function's question replaces 0."""


@pytest.mark.parametrize("message", [each for _, each in STRANGE], ids=[name for name, _ in STRANGE])
async def test_a_message_of_another_session_reaches_no_function(place: Place, message: dict[str, Any]) -> None:
    """It is like one for what no process runs, whether it meets the process that runs the function or another one."""
    async with opened(place) as both, both.one.call("greet", id=5) as r:
        events = Events(r)
        question = await events.message()
        stranger = Raw(both.two.http)
        await stranger.initialize(elicitation={})
        told = []
        for http in (both.one.http, both.two.http):
            stranger.http = http
            for number in (question["id"], question["id"] + 500):
                given = from_json(to_json(message).replace(b":0", b":%d" % number))
                told.append(await stranger.send({"jsonrpc": "2.0", **given}))
            assert (await stranger.post("ping")).status_code == 200
        assert len({(each.status_code, each.content) for each in told}) == 1
        answer = {"action": "accept", "content": {"name": "Ann"}}
        assert (await both.two.send({"jsonrpc": "2.0", "id": question["id"], "result": answer})).status_code == 202
        assert (await events.message())["result"]["content"][0]["text"] == "Hello, Ann"


@pytest.mark.parametrize("number", [0, 10**9 + 1, 10**18 - 1])
async def test_an_event_id_that_was_never_given_gets_nothing(place: Place, number: int) -> None:
    """Nor does that of another session's stream."""
    async with opened(place) as both, both.one.call("wait", {"progress": 1}) as r:
        await Events(r).message()
        stranger = Raw(both.two.http)
        await stranger.initialize()
        async with stranger.listen(f"{number}-{10**18 - 1}") as refused:
            assert refused.status_code in (400, 410)
        async with both.two.listen(f"{10**9 + 1}-99") as refused:
            assert refused.status_code == 400


async def test_a_list_that_changes_while_the_client_listens_nowhere_is_told_by_its_process(place: Place) -> None:
    """What is registered belongs to a process, so the store does not know of the change."""
    async with opened(place) as both:
        both.made[0].server.remove_tool("add")
        for name in ("count", "fails"):
            async with both.one.listen() as r:
                assert (await Events(r).message())["method"] == "notifications/tools/list_changed"
            both.made[0].server.remove_tool(name)


async def test_all_that_waits_in_a_mailbox_is_read_at_once(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """`SessionStore.letters` may return a part of what waits, and no further wake-up comes for the rest."""
    reads: dict[Any, list[list[int]]] = {}  # how many letters each call has returned, for each time a task reads them
    read = sharing.Membership._read_letters  # noqa: SLF001

    async def noted(self: sharing.Membership, member: Any) -> None:
        reads.setdefault(trio.lowlevel.current_task(), []).append([])
        await read(self, member)

    async with opened(place) as both, both.one.call("greet") as r:
        events = Events(r)
        question = await events.message()
        store = both.made[0].server._core.stores.sessions  # noqa: SLF001
        letters = store.letters

        async def one_by_one(token: str, after: int) -> Any:
            found = (await letters(token, after))[:1]
            if (task := trio.lowlevel.current_task()) in reads:
                reads[task][-1].append(len(found))
            return found

        monkeypatch.setattr(sharing.Membership, "_read_letters", noted)
        monkeypatch.setattr(store, "letters", one_by_one)
        answer = {"jsonrpc": "2.0", "id": question["id"], "result": {"action": "accept", "content": {"name": "Ann"}}}
        assert (await both.two.send(answer)).status_code == 202
        assert (await events.message())["result"]["content"][0]["text"] == "Hello, Ann"
        await eventually(lambda: [1, 0] in [each for every in reads.values() for each in every])


async def test_a_process_looks_after_others_once_a_second_however_slow_its_store_is(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So the streams of a dead process end at most a second after its lease."""
    listeners = TopicListeners()
    async with SharedMemory() as stores, trio.open_nursery() as nursery:
        read, looks = stores.sessions.letters, []
        monkeypatch.setattr(
            stores, "listen", lambda topic: listeners.listen(topic, lambda: LOOK - trio.current_time() % LOOK)
        )

        async def letters(token: str, after: int) -> Any:
            await trio.sleep(0 if looks else 0.2)  # the first look is late, and the others are not
            return await read(token, after)

        async def take_over(**_: Any) -> list[Any]:
            looks.append(trio.current_time())
            await trio.lowlevel.checkpoint()
            return []

        monkeypatch.setattr(stores.sessions, "letters", letters)
        monkeypatch.setattr(stores.sessions, "take_over", take_over)
        await trio.sleep(LOOK - trio.current_time() % LOOK)
        begun = trio.current_time()
        await sharing.Membership(stores, nursery, lambda: 0).join()
        await trio.sleep(4.5)
        nursery.cancel_scope.cancel()
    assert [round(look - begun, 3) for look in looks] == [0.2, 1, 2, 3, 4]


class Away:
    """The sessions of a store that can't be used at some times."""

    def __init__(self, store: SessionStore, when: Callable[[float], bool]) -> None:
        self._store, self._when = store, when

    def __getattr__(self, name: str) -> Any:
        async def call(*args: Any, **given: Any) -> Any:
            if self._when(trio.current_time()):
                await trio.lowlevel.checkpoint()
                raise StoreError("away")
            return await getattr(self._store, name)(*args, **given)

        return call


@asynccontextmanager
async def members_of(
    monkeypatch: pytest.MonkeyPatch, *away: Callable[[float], bool]
) -> AsyncIterator[tuple[SharedMemory, list[sharing.Membership]]]:
    """Yield stores with a member for each function, which says when the store is away for it; and times begin at 0."""
    listeners = TopicListeners()
    async with SharedMemory() as stores, trio.open_nursery() as nursery:
        monkeypatch.setattr(stores, "listen", lambda topic: listeners.listen(topic, lambda: LOOK))
        members = [sharing.Membership(stores, nursery, lambda: 0) for _ in away]
        began = trio.current_time()
        for member, when in zip(members, away, strict=True):
            await member.join()
            member.store = cast(Any, Away(stores.sessions, lambda now, when=when: when(now - began)))
        yield stores, members
        nursery.cancel_scope.cancel()


async def test_no_process_loses_its_lease_because_the_store_was_away(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All leases have expired by then; the process that first finds the store back lets the others renew theirs."""
    back = 2 * LEASE
    away = [lambda now: now < back, lambda now: now < back + 3, lambda now: True]  # the last is as if it were dead
    async with members_of(monkeypatch, *away) as (stores, members):
        tokens = [member.token for member in members]
        await trio.sleep(4 * LEASE)
        assert [member.token for member in members[:2]] == tokens[:2]
        with pytest.raises(StaleWriter):
            await stores.sessions.stay(tokens[2], lease=LEASE)


async def test_a_store_that_is_away_now_and_then_keeps_no_process_from_looking_after_the_dead(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their clients wait for the end of their streams."""
    away = [lambda now: now % 4 < 2, lambda now: True]
    async with members_of(monkeypatch, *away) as (stores, members):
        token = members[1].token
        await trio.sleep(LEASE + 4 + LOOK)
        with pytest.raises(StaleWriter):
            await stores.sessions.stay(token, lease=LEASE)
