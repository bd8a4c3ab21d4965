"""What exchanges cost a server is given back: tasks, objects and bytes."""

from __future__ import annotations

import contextlib
import gc
import logging
import tracemalloc
import weakref
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from pydantic_core import to_json

import trio_mcp
from tests.http_peer import LATEST, http_request as http, request
from tests.server.http.asgi_client import Connection
from tests.server.http.harness import Made, served
from tests.server.http.http2_client import over_http2
from tests.server.http.in_memory import App, over_memory
from tests.waiting import eventually
from trio_mcp import Context, Server
from trio_mcp.http.runner.h1 import incoming
from trio_mcp.http.runner.hypercorn.settings import QuietConfig
from trio_mcp.http.runner.wire import PIECE
from trio_mcp.http.server.options import HttpOptions

OURS = ("trio", "trio_mcp", "hypercorn", "h11", "httptools")
META = {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}
HELLO = {"protocolVersion": LATEST, "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}


def modern(tool: str, arguments: dict[str, Any], **fields: str) -> bytes:
    params = {"name": tool, "arguments": arguments, "_meta": {**META, "progressToken": 1}}
    more = {"mcp_protocol_version": "2026-07-28", "mcp_method": "tools/call", "mcp_name": tool, **fields}
    return http("POST", request("tools/call", params, 1), **more)


def legacy(session: str, number: int, tool: str, arguments: dict[str, Any]) -> bytes:
    params = {"name": tool, "arguments": arguments, "_meta": {"progressToken": number}}
    return http("POST", request("tools/call", params, number), mcp_session_id=session)


EXCHANGES: list[Callable[[str, int], tuple[bytes, bytes]]] = [
    # what is sent, and the end of the awaited response; empty: the client disconnects at once
    lambda session, number: (http("POST", b"{}", content_type="text/plain"), b"HTTP/1.1 415"),
    lambda session, number: (http("GET", path=f"/nothing/{number}"), b"HTTP/1.1 404"),
    lambda session, number: (http("POST", {}, host=f"evil{number}.example"), b"HTTP/1.1 403"),
    lambda session, number: (http("POST", b"{", mcp_session_id=session), b"HTTP/1.1 400"),
    lambda session, number: (http("POST", request("ping", None, 1), mcp_session_id=f"s{number}"), b"HTTP/1.1 404"),
    lambda session, number: (http("GET", mcp_session_id=session, last_event_id=f"{number}-9"), b"HTTP/1.1 4"),
    lambda session, number: (b"GARBAGE %d\r\n\r\n" % number, b"HTTP/1.1 400"),
    lambda session, number: (legacy(session, number, "fails", {}), b'"isError":true'),
    lambda session, number: (legacy(session, number, f"nothing{number}", {}), b'"error"'),
    lambda session, number: (legacy(session, number, "add", {"a": number, "b": 1}), b'"result"'),
    lambda session, number: (legacy(session, number, "count", {"to": 500}), b'"progress":'),
    lambda session, number: (legacy(session, number, "count", {"to": 5}), b""),
    lambda session, number: (http("GET", mcp_session_id=session), b"HTTP/1.1 200"),
    lambda session, number: (http("POST", request("initialize", {}, number)), b'"error"'),
    lambda session, number: (modern("fails", {}), b'"isError":true'),
    lambda session, number: (modern(f"nothing{number}", {}), b'"error"'),
    lambda session, number: (modern("add", {"a": 1, "b": 2}, mcp_name=f"other{number}"), b"HTTP/1.1 400"),
    lambda session, number: (modern("add", {"a": number, "b": 2}), b'"result"'),
    lambda session, number: (modern("wait", {"progress": 1}), b'"progress":'),
    lambda session, number: (modern("wait", {}), b""),
]


async def say(address: tuple[str, int], data: bytes, until: bytes) -> bytes:
    """Send a request, read up to something, and leave."""
    async with await trio.open_tcp_stream(*address) as stream:
        await stream.send_all(data)
        got = b""
        with contextlib.suppress(trio.BrokenResourceError):
            while until not in got:
                chunk = await stream.receive_some()
                assert chunk, (data, got)
                got += chunk
    return got


async def pruned() -> None:
    """Make Trio drop the scopes of stale deadlines, of which it keeps a little over a thousand."""
    with trio.move_on_after(1000) as scope:
        await trio.lowlevel.checkpoint()
    kept = weakref.ref(scope)
    del scope
    while kept() is not None:
        with trio.move_on_after(1000):
            await trio.lowlevel.checkpoint()


class Yard:
    """A server that serves every kind of exchange over and over, each on a connection of its own."""

    def __init__(self, made: Made, address: tuple[str, int]) -> None:
        self.made, self.address = made, address
        self.session = ""
        self.number = 100

    async def opened(self) -> str:
        answer = await say(self.address, http("POST", request("initialize", HELLO, 1)), b'"result"')
        return answer.partition(b"mcp-session-id: ")[2].partition(b"\r\n")[0].decode()

    async def batch(self, size: int) -> None:
        for _ in range(size):
            exchange = EXCHANGES[self.number % len(EXCHANGES)]
            await say(self.address, *exchange(self.session, self.number))
            if self.number % len(EXCHANGES) == 0:  # a session that is opened, used and ended
                other = await self.opened()
                await say(self.address, legacy(other, 2, "count", {"to": 2}), b'"result"')
                await say(self.address, http("DELETE", mcp_session_id=other), b"HTTP/1.1 204")
            self.number += 1

    async def settled(self) -> tuple[int, Counter[str]]:
        """Return the number of living tasks, and of the server's objects by type, once all is quiet."""
        await eventually(lambda: (now := self.made.server.statistics()).sessions <= 1 and not now.running)
        await trio.testing.wait_all_tasks_blocked(0.05)
        await pruned()
        gc.collect()
        kinds = (type(each) for each in gc.get_objects())
        names = (f"{kind.__module__}.{kind.__qualname__}" for kind in kinds)
        return trio.lowlevel.current_statistics().tasks_living, Counter(
            name for name in names if name.partition(".")[0] in OURS
        )


@contextlib.asynccontextmanager
async def yard(options: HttpOptions, first: int) -> AsyncIterator[Yard]:
    """Serve `first` exchanges up front, so that whatever is made only once exists already."""
    async with served(options) as (made, client, _):
        url = client.base_url
        made_one = Yard(made, (url.host, url.port or 0))
        made_one.session = await made_one.opened()
        await made_one.batch(first)
        yield made_one


def kept() -> int:
    """Return the number of bytes that our own code has allocated and not freed."""
    filters = [
        # The folder of the checkout may have the name of the package.
        tracemalloc.Filter(inclusive=True, filename_pattern=str(Path(trio_mcp.__file__).parent / "*")),
        # pydantic's parser has a cache of short strings, of a fixed size.
        tracemalloc.Filter(inclusive=False, filename_pattern="*/trio_mcp/jsonrpc/codec.py"),
    ]
    statistics = tracemalloc.take_snapshot().filter_traces(filters).statistics("filename")
    return sum(statistic.size for statistic in statistics)


@pytest.fixture(autouse=True)
def _quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """pytest keeps each record of the log, and with it what its traceback refers to."""
    monkeypatch.setattr(logging.getLogger("trio_mcp"), "disabled", True)


@pytest.fixture(autouse=True)
def _forgetful(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the heads that were seen before, only the last one is remembered."""
    monkeypatch.setattr(incoming, "MAX_SEEN", 1)


@pytest.mark.again
@pytest.mark.legacy
@pytest.mark.parametrize("stored", [False, True], ids=["no store", "store"])
async def test_after_refused_failed_and_closed_exchanges_no_task_and_no_object_is_left(stored: bool) -> None:
    """Ten of each kind, each on a connection of its own; objects of Trio, hypercorn, h11 and our own are counted."""
    from trio_mcp import MemoryEventStore

    options = HttpOptions(event_store=MemoryEventStore(max_events=50) if stored else None)
    async with yard(options, 100) as busy:
        tasks, objects = await busy.settled()
        await busy.batch(200)
        tasks_now, objects_now = await busy.settled()
        # Not the reverse: a thread that an earlier test used ends after ten idle seconds, perhaps in between.
        assert (tasks_now - tasks, objects_now - objects) == (0, Counter())


@pytest.mark.again
@pytest.mark.legacy
async def test_memory_returns_to_where_it_was() -> None:
    """A count of objects does not show bytes, strings and entries of dictionaries."""
    async with yard(HttpOptions(), 200) as busy:
        tracemalloc.start()
        try:
            await busy.batch(100)
            await busy.settled()
            before = kept()
            await busy.batch(500)
            await busy.settled()
            assert kept() - before < 1000  # two bytes for each exchange; what is kept once has to fit in, too
        finally:
            tracemalloc.stop()


@pytest.mark.legacy
async def test_an_idle_session_has_one_task_and_at_most_20_kib() -> None:
    count = 200
    async with Server("test").asgi_app() as app:

        async def open_sessions(number: int) -> tuple[int, int]:
            for _ in range(number):
                opened = Connection("POST", {}, to_json(request("initialize", HELLO, 0)))
                await opened.run(app)
                session = {"mcp-session-id": opened.headers["mcp-session-id"]}
                ready = {"jsonrpc": "2.0", "method": "notifications/initialized"}
                await Connection("POST", session, to_json(ready)).run(app)
            await trio.testing.wait_all_tasks_blocked()
            gc.collect()
            return tracemalloc.get_traced_memory()[0], trio.lowlevel.current_statistics().tasks_living

        tracemalloc.start()
        try:
            before, tasks = await open_sessions(5)
            after, more_tasks = await open_sessions(count)
        finally:
            tracemalloc.stop()
    assert more_tasks == tasks + count
    assert (after - before) / count <= 20 * 1024, f"{(after - before) / count / 1024:.1f} KiB"


async def test_what_is_cached_for_a_tool_goes_with_it() -> None:
    """A server that makes a tool for each client, or for each table of a database."""
    server = Server("test")
    tools: list[weakref.ref[Any]] = []
    async with server.asgi_app() as app:
        for number in range(100):

            async def tool(city: str) -> None:
                pass

            name = f"tool{number}"
            params = {"name": name, "arguments": {"city": "x"}, "_meta": META}
            fields = {"mcp-protocol-version": "2026-07-28", "mcp-method": "tools/call", "mcp-name": name}
            server.add_tool(tool, name=name)
            tools.append(weakref.ref(tool))
            called = Connection("POST", fields, to_json(request("tools/call", params, 1)))
            await called.run(app)
            assert b'"result"' in called.body
            server.remove_tool(name)
        del tool
        gc.collect()
        assert sum(each() is not None for each in tools) <= 2


# --- answers that wait ----------------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def waiting_answers(app: Any, protocol: str, count: int, folder: Path) -> AsyncIterator[Callable[[], int]]:
    """Open `count` exchanges whose clients do not read; yield a function that counts the bytes allocated since."""
    async with contextlib.AsyncExitStack() as stack:
        before = 0
        # The first connection of a process loads modules and fills caches, which belong to no exchange.
        async with over_memory(App(), QuietConfig()) as (stream, _, _):
            await stream.send_all(modern("much", {}))
            await stream.receive_some()
        tracemalloc.start()
        stack.callback(tracemalloc.stop)
        if protocol == "h2":
            client, _, _ = await stack.enter_async_context(over_http2(app, folder, window=0))
            before = tracemalloc.get_traced_memory()[0]
            for _ in range(count):
                await client.call("much")
            while len(client.statuses) < count:
                await client.read()
        else:
            before = tracemalloc.get_traced_memory()[0]
            for _ in range(count):
                stream, _, _ = await stack.enter_async_context(over_memory(app, QuietConfig()))
                await stream.send_all(modern("much", {}))
        await trio.testing.wait_all_tasks_blocked()
        gc.collect()
        yield lambda: tracemalloc.get_traced_memory()[0] - before


@pytest.mark.parametrize("protocol", ["http/1.1", "h2"])
async def test_an_answer_that_waits_for_its_client_is_not_copied(protocol: str, tmp_path: Path) -> None:
    """The text that the application gave is kept, and only one piece of it is copied at a time."""
    app = App(b"x" * 2_000_000)
    async with waiting_answers(app, protocol, 8, tmp_path) as asked:
        assert app.begun == 8
        assert asked() < 8 * 2 * PIECE


@pytest.mark.parametrize("progress", [False, True], ids=["json", "events"])
@pytest.mark.parametrize("protocol", ["http/1.1", "h2"])
async def test_only_the_text_of_a_waiting_result_is_kept(protocol: str, progress: bool, tmp_path: Path) -> None:
    server, size = Server("test"), 1_000_000

    @server.tool
    async def much(ctx: Context) -> str:
        if progress:
            await ctx.report_progress(1)
        return "x" * size

    async with server.asgi_app() as app, waiting_answers(app, protocol, 8, tmp_path) as asked:
        assert asked() < 8 * (2 * size + 3 * PIECE)  # it is in there as content and as structured content
