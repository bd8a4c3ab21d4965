"""Links and event stores."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from tempfile import TemporaryDirectory
from typing import Any

import trio
import trio.testing

from tests.checkpoints.table import Check, all_or_nothing, call, cancelled_before, effect, not_entered
from tests.kit.golden import FOLDER as GOLDEN
from tests.peer import settle
from tests.public_names import ROOT
from trio_mcp import Client, EventStore, MemoryEventStore, Server, SqliteEventStore, StdioServerParameters
from trio_mcp._nursery import EnteredOnce
from trio_mcp.client.targets import Target
from trio_mcp.conformance import RecordedServer, check_client, check_server, preview_client, preview_server
from trio_mcp.low_level import (
    failover_client,
    memory_link_pair,
    sse_client,
    stdio_client,
    stdio_server,
    stream_link,
    streamable_http_client,
    tcp_client,
    unix_client,
    websocket_client,
)
from trio_mcp.server.base_server import BaseServer
from trio_mcp.stores.event_store import EventsLost, StoredEvent
from trio_mcp.testing import FaultLinks, FaultProxy, Snapshot, check_transport
from trio_mcp.types.versions import LATEST_LEGACY


@call(memory_link_pair, "with messages as objects, and as bytes")
async def memory(check: Check) -> None:
    for encode in (False, True):
        async with check.block(memory_link_pair(encode=encode)):
            pass


@call(check_transport, "one rule")
async def contract(check: Check) -> None:
    await check(check_transport(memory_link_pair, rules={"opens"}))


@call(RecordedServer.serve, "until the client has gone, and one that has")
async def serve_recorded(check: Check) -> None:
    golden = RecordedServer(GOLDEN / "ours-tcp-2026-07-28.jsonl")
    async with memory_link_pair() as (ours, theirs), trio.open_nursery() as nursery:
        nursery.start_soon(check, golden.serve(theirs))
        await settle()
        await ours.write.aclose()
    async with memory_link_pair() as (ours, theirs):
        await ours.write.aclose()
        await check(golden.serve(theirs))


@call(vars(Snapshot)["of"].__func__, "all lists, and none")
async def snapshot(check: Check) -> None:
    full = Server("x")
    full.add_tool(lambda: "1", name="one", description="One.")
    for server in (full, Server("y")):
        async with Client(server) as client:
            await check(Snapshot.of(client))


@call(check_server, "one example")
async def check_of_server(check: Check) -> None:
    await check(check_server(Server("x"), examples=1))


@call(preview_server, "one revision")
async def preview_of_server(check: Check) -> None:
    await check(preview_server(Server("x"), revisions=[LATEST_LEGACY]))


async def connect(target: Target) -> None:
    async with Client(target):
        pass


@call(check_client, "one example")
async def check_of_client(check: Check) -> None:
    await check(check_client(connect, examples=1))


@call(preview_client, "one revision")
async def preview_of_client(check: Check) -> None:
    await check(preview_client(connect, revisions=[LATEST_LEGACY]))


@call(failover_client, "one way")
async def ways(check: Check) -> None:
    async with check.block(failover_client([Server("x")])):
        pass


@call(stdio_client, "a process that ends")
async def child(check: Check) -> None:
    program = [sys.executable, "-S", "-c", "input()"]
    async with check.block(stdio_client(StdioServerParameters(program[0], program[1:], stderr="discard"))):
        pass


PROGRAM = """
import sys
import trio
from tests.checkpoints.table import Check
from trio_mcp import Server
from trio_mcp.low_level import stdio_server
from trio_mcp.server.base_server import BaseServer

async def main():
    if sys.argv[1] == "serve":
        await Check(BaseServer.serve_stdio)(Server("x").serve_stdio())
    else:
        async with Check(stdio_server).block(stdio_server()):
            pass

trio.run(main)
"""


def in_a_process(function: Any, what: str) -> None:
    @call(function, "a client that leaves")
    async def serve(check: Check) -> None:
        # The standard streams of this process are pytest's.
        command = [sys.executable, "-c", PROGRAM, what]
        await trio.run_process(command, stdin=b"", stdout=subprocess.DEVNULL, cwd=ROOT)
        check.count += 1


in_a_process(BaseServer.serve_stdio, "serve")
in_a_process(stdio_server, "link")


@call(streamable_http_client, "nothing is sent")
async def http(check: Check) -> None:
    async with check.block(streamable_http_client("http://127.0.0.1:1/mcp")):
        pass


@call(sse_client, "connected")
async def sse(check: Check) -> None:
    async with trio.open_nursery() as nursery:
        url = await nursery.start(lambda task_status: Server("x").serve_sse(port=0, task_status=task_status))
        async with check.block(sse_client(url)):
            pass
        nursery.cancel_scope.cancel()


@call(FaultLinks.__call__, "over a link in memory")
async def links_with_faults(check: Check) -> None:
    async with memory_link_pair() as (ours, _):
        links = FaultLinks(lambda: contextlib.nullcontext(ours))
        async with check.block(links()):
            pass


@call(EnteredOnce.__aenter__, "a proxy with faults")
@call(EnteredOnce.__aexit__, "a proxy with faults")
async def proxy_with_faults(check: Check) -> None:
    async with check.block(FaultProxy("tcp://127.0.0.1:1")):
        pass


@call(websocket_client, "connected")
async def websocket(check: Check) -> None:
    async with trio.open_nursery() as nursery:
        url = await nursery.start(lambda task_status: Server("x").serve_websocket(port=0, task_status=task_status))
        async with check.block(websocket_client(url)):
            pass
        nursery.cancel_scope.cancel()


@call(tcp_client, "connected")
async def tcp(check: Check) -> None:
    async with trio.open_nursery() as nursery:
        url = await nursery.start(lambda task_status: Server("x").serve_tcp(port=0, task_status=task_status))
        async with check.block(tcp_client(url)):
            pass
        nursery.cancel_scope.cancel()


@call(unix_client, "connected")
async def unix(check: Check) -> None:
    with TemporaryDirectory() as folder:
        async with trio.open_nursery() as nursery:
            url = await nursery.start(Server("x").serve_unix, f"{folder}/socket")
            async with check.block(unix_client(url)):
                pass
            nursery.cancel_scope.cancel()


@call(stream_link, "whose peer is there, and whose peer has gone")
async def stream(check: Check) -> None:
    ours, theirs = trio.testing.memory_stream_pair()
    async with check.block(stream_link(ours)):
        pass
    async with check.block(stream_link(theirs)):
        pass


# --- event stores -----------------------------------------------------------------------------------------------

EVENTS = [StoredEvent(1, number, b"{}") for number in (1, 2)]


@contextlib.asynccontextmanager
async def opened(store: Any) -> AsyncIterator[Any]:
    """Close a store at the end of a block, if it can be closed."""
    async with contextlib.AsyncExitStack() as stack:
        if isinstance(store, SqliteEventStore):
            stack.push_async_callback(store.aclose)
        yield store


def of_a_store(make: Callable[[], Any]) -> None:
    kind = type(make())

    @call(kind.append, "new events, known ones, none")
    async def append(check: Check) -> None:
        async with opened(make()) as store:
            await check(store.append("session", EVENTS))
            await check(store.append("session", EVENTS))
            await check(store.append("session", []))

    @call(kind.after, "some, and none")
    async def after(check: Check) -> None:
        async with opened(make()) as store:
            await store.append("session", EVENTS)
            assert len(await check(store.after("session", 1, 1))) == 1
            assert not await check(store.after("session", 1, 2))

    @call(kind.forget, "a known session and an unknown one")
    async def forget(check: Check) -> None:
        async with opened(make()) as store:
            await store.append("session", EVENTS)
            await check(store.forget("session"))
            await check(store.forget("session"))

    @effect(kind.append, "kept or cancelled")
    async def kept() -> None:
        async with opened(make()) as store:

            async def count() -> int:
                return len(await numbers(store))

            await all_or_nothing(lambda number: store.append("session", [StoredEvent(1, number, b"{}")]), count)

    @effect(kind.forget, "forgotten or cancelled")
    async def forgotten() -> None:
        async with opened(make()) as store:
            sessions = [f"{number}" for number in range(1, 50)]
            for session in sessions:
                await store.append(session, EVENTS)

            async def count() -> int:
                return sum([not await numbers(store, session) for session in sessions])

            await all_or_nothing(lambda number: store.forget(f"{number}"), count)


async def numbers(store: EventStore, session: str = "session") -> list[int]:
    """Return the numbers of the stored events."""
    try:
        return [event.number for event in await store.after(session, 1, 0)]
    except EventsLost:
        return []


of_a_store(MemoryEventStore)
of_a_store(lambda: SqliteEventStore(":memory:"))


@effect(SqliteEventStore.__aenter__, "no file is made")
async def no_file() -> None:
    with TemporaryDirectory() as folder:
        await not_entered(SqliteEventStore(f"{folder}/events"))
        assert not os.listdir(folder)


@effect(SqliteEventStore.aclose, "closed all the same")
async def store_closes() -> None:
    async with opened(SqliteEventStore(":memory:")) as store:
        await store.append("session", EVENTS)
        await cancelled_before(store.aclose())
        assert await numbers(store) == []  # a new one, as that is gone


@call(SqliteEventStore.__aenter__, "opened")
@call(SqliteEventStore.aclose, "opened")
async def sqlite_block(check: Check) -> None:
    store = SqliteEventStore(":memory:")
    if check.function is SqliteEventStore.aclose:
        await check(store.aclose())
        async with store:
            await check(store.aclose())
    else:
        async with check.block(store):
            pass
