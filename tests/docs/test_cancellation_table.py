"""Every row of the table in docs/explanation/sessions.md: what each public operation does when it is cancelled."""

from __future__ import annotations

import contextlib
import functools
import os
import re
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from tests.client.asking import TOOLS, asks
from tests.client.listening import MODERN, notice
from tests.client.listening import listening as heard_by_one
from tests.client.scripted import scripted
from tests.docs.pages import ROOT
from tests.http_peer import Asked, peer
from tests.peer import Peer
from trio_mcp import (
    Answers,
    BaseSession,
    CallOptions,
    Client,
    ClientSession,
    FunctionOptions,
    Link,
    ProcessExited,
    RequestContext,
    Server,
    SessionOptions,
    StdioServerParameters,
    ToolsListChanged,
    memory_link_pair,
    sse_client,
    stdio_client,
    streamable_http_client,
)
from trio_mcp.jsonrpc.messages import Notification, Request, Response, SessionMessage

REASON = "enough of it"
HANG = 30  # seconds; only a net, nothing here waits that long
CHECKS: dict[str, Callable[..., Awaitable[None]]] = {}


def row(operation: str) -> Callable[[Callable[..., Awaitable[None]]], Callable[..., Awaitable[None]]]:
    """Register a function as the check of the row that begins with this text."""

    def register(check: Callable[..., Awaitable[None]]) -> Callable[..., Awaitable[None]]:
        CHECKS[operation] = check
        return check

    return register


def rows_of_the_page() -> list[str]:
    page = (ROOT / "docs" / "explanation" / "sessions.md").read_text()
    table = page.partition("| operation | when cancelled |\n|---|---|\n")[2].partition("\n\n")[0]
    return [line.split(" | ")[0].removeprefix("| ").replace("`", "") for line in table.splitlines()]


@pytest.mark.parametrize("operation", rows_of_the_page())
async def test_a_row(operation: str) -> None:
    with trio.fail_after(HANG):
        await CHECKS[operation]()


def test_the_page_has_all_rows() -> None:
    assert sorted(rows_of_the_page()) == sorted(CHECKS)


# --- what the checks are made of ----------------------------------------------------------------------------------


async def cancel_while_blocked(operation: Callable[[], Awaitable[object]]) -> None:
    """Start an operation, cancel it when it waits, and see that it takes no time to leave."""
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:

            @nursery.start_soon
            async def cancel() -> None:
                await trio.testing.wait_all_tasks_blocked()
                scope.cancel(REASON)

            await operation()
    assert scope.cancelled_caught


@contextlib.asynccontextmanager
async def session_without_room(**options: Any) -> AsyncIterator[tuple[BaseSession, Link]]:
    """Yield a session whose outbox is full, and the other end of its link, which has not been read yet."""
    limits = SessionOptions(max_outgoing_messages=1, **options)
    async with memory_link_pair() as (ours, theirs), BaseSession(*ours, options=limits) as session:
        await fill(session)
        yield session, theirs


async def fill(session: BaseSession) -> None:
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:

            @nursery.start_soon
            async def stop() -> None:
                await trio.testing.wait_all_tasks_blocked()
                scope.cancel()

            while True:
                await session.send_notification("filler")


async def methods_sent(link: Link) -> list[str]:
    """Return the methods of everything that comes out of a link until nothing more does."""
    found: list[str] = []
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:

            @nursery.start_soon
            async def stop() -> None:
                await trio.testing.wait_all_tasks_blocked()
                scope.cancel()

            async for item in link.read:
                assert isinstance(item.message, Request | Notification)
                found.append(item.message.method)
    return found


async def next_message(link: Link) -> Any:
    return (await link.read.receive()).message


async def told_of_the_cancellation(link: Link, operation: Callable[[], Awaitable[object]]) -> None:
    """Cancel an operation once its request has arrived: the next message must be the notice."""
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(operation)
            request = await next_message(link)
            scope.cancel(REASON)
    notice = await next_message(link)
    assert notice.method == "notifications/cancelled"
    assert notice.params == {"requestId": request.id, "reason": REASON}


# Ends only by SIGKILL, or by itself when asked to under no pressure; answers the handshake, or nothing at all.
STUBBORN = """
import json, os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print(os.getpid(), file=sys.stderr, flush=True)
if "answer" in sys.argv:
    asked = json.loads(sys.stdin.readline())
    result = {"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": {"name": "x", "version": "1"}}
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}), flush=True)
time.sleep(600)
"""


class Stubborn:
    """A server process that does not exit by itself."""

    def __init__(self, *arguments: str) -> None:
        self.started = trio.Event()
        self.pid = 0
        self.parameters = StdioServerParameters(
            sys.executable, ["-c", STUBBORN, *arguments], stderr=self._line, shutdown_grace=600
        )

    def _line(self, line: str) -> None:
        self.pid = int(line)
        self.started.set()

    def is_gone(self) -> bool:
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return True
        return False


# --- the rows -----------------------------------------------------------------------------------------------------


@row("async with Client(...), while connecting")
async def connecting() -> None:
    server = Stubborn()
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:

            @nursery.start_soon
            async def cancel() -> None:
                await server.started.wait()
                scope.cancel()

            async with Client(
                server.parameters, options=SessionOptions(calls=CallOptions(connect_timeout=600, probe_timeout=600))
            ):
                raise AssertionError("connected")
    assert scope.cancelled_caught
    assert server.is_gone()


@row("Client.call_tool, list_tools, iter_tools, request, ping")
async def client_requests() -> None:
    async with memory_link_pair() as (ours, theirs), trio.open_nursery() as nursery:

        @contextlib.asynccontextmanager
        async def target() -> AsyncIterator[Link]:
            yield ours

        @nursery.start_soon
        async def shake_hands() -> None:
            peer = Peer(theirs, capabilities={"tools": {}})
            await peer.greet()
            assert (await peer.expect(Notification)).method == "notifications/initialized"

        async with Client(target, mode="legacy") as client:
            await trio.testing.wait_all_tasks_blocked()
            for operation in (
                lambda: client.call_tool("x"),
                lambda: client.list_tools(),
                lambda: anext(client.iter_tools()),
                lambda: client.request("tools/list"),
                lambda: client.ping(),
            ):
                await told_of_the_cancellation(theirs, operation)


@row("Client.call_tool, get_prompt, read_resource, while a callback gives input")
async def giving_input() -> None:
    question = asks(q={"method": "roots/list"})
    calls: dict[str, Callable[[Client], Awaitable[object]]] = {
        "tools/call": lambda client: client.call_tool("x"),
        "prompts/get": lambda client: client.get_prompt("x"),
        "resources/read": lambda client: client.read_resource("x:y"),
    }
    for method, call in calls.items():
        reasons: list[str | None] = []

        async def give(reasons: list[str | None] = reasons) -> list[Any]:
            try:
                await trio.sleep_forever()
            except trio.Cancelled as exc:
                reasons.append(exc.reason)
                raise
            return []

        answers = {method: question}
        async with scripted(answers, revision=MODERN, capabilities=TOOLS, answers=Answers(roots=give)) as (
            client,
            asked,
            wire,
        ):
            await cancel_while_blocked(functools.partial(call, client))
            await trio.testing.wait_all_tasks_blocked()
            assert reasons == [REASON]
            assert [request.method for request in asked] == [method]
            assert wire.arrived() == []


@row("Client.set_roots")
async def setting_roots() -> None:
    options = SessionOptions(max_outgoing_messages=1)
    async with memory_link_pair() as (ours, theirs), trio.open_nursery() as nursery:

        @contextlib.asynccontextmanager
        async def target() -> AsyncIterator[Link]:
            yield ours

        wire = Peer(theirs)

        async def shake_hands() -> None:
            await wire.greet()
            await wire.expect(Notification)

        nursery.start_soon(shake_hands)
        async with Client(target, mode="legacy", answers=Answers(roots=["file:///old"]), options=options) as client:
            await fill(client.session)
            await cancel_while_blocked(lambda: client.set_roots(["file:///new"]))
            sent = [message for message in wire.arrived() if isinstance(message, Notification)]
            assert "notifications/roots/list_changed" not in [message.method for message in sent]
            await wire.send(Request("roots", "roots/list"))
            while not isinstance(answer := await wire.receive(), Response):
                pass
            assert answer.result == {"roots": [{"uri": "file:///old"}]}


@row("Client.aclose")
async def client_close() -> None:
    server = Stubborn("answer")
    async with Client(server.parameters, mode="legacy") as client:
        with trio.CancelScope() as scope:
            scope.cancel()
            await client.aclose()
        assert scope.cancelled_caught
    assert server.is_gone()


@row("async with Client.listen(...), and its loop")
async def listening() -> None:
    async with scripted({}, revision=MODERN) as (client, asked, wire):

        async def enter() -> None:
            async with client.listen(tools_list_changed=True):
                raise AssertionError

        await cancel_while_blocked(enter)
        await trio.testing.wait_all_tasks_blocked()
        assert [note.params for note in wire.heard] == [{"requestId": asked[0].id, "reason": REASON}]
    async with scripted({}, revision=MODERN) as rig, heard_by_one(*rig, tools_list_changed=True) as (listener, request):
        assert listener.subscription is not None
        await cancel_while_blocked(listener.subscription.__anext__)
        await rig[2].send(notice("notifications/tools/list_changed", request.id))
        await trio.testing.wait_all_tasks_blocked()
        assert listener.events == [ToolsListChanged()]


@row("BaseSession.send_request")
async def request() -> None:
    async with memory_link_pair() as (ours, theirs), BaseSession(*ours) as session:
        await told_of_the_cancellation(theirs, lambda: session.send_request("x"))
    async with session_without_room() as (session, theirs):
        await cancel_while_blocked(lambda: session.send_request("x"))
        assert set(await methods_sent(theirs)) == {"filler"}


@row("ClientSession.discover, negotiate, ping")
async def opening() -> None:
    for name in ("discover", "negotiate", "ping"):
        async with memory_link_pair() as (ours, theirs), ClientSession(*ours) as session:
            await told_of_the_cancellation(theirs, getattr(session, name))
            with pytest.raises(Exception, match="not open yet"):
                assert session.server


@row("ClientSession.initialize")
async def handshake() -> None:
    async with memory_link_pair() as (ours, theirs), ClientSession(*ours) as session:
        await cancel_while_blocked(session.initialize)
        assert await methods_sent(theirs) == ["initialize"]
        with pytest.raises(Exception, match="not open yet"):
            assert session.server


@row("BaseSession.send_notification")
async def notification() -> None:
    async with session_without_room() as (session, theirs):
        await cancel_while_blocked(lambda: session.send_notification("x"))
        assert set(await methods_sent(theirs)) == {"filler"}


@row("BaseSession.aclose")
async def session_close() -> None:
    async with session_without_room(close_grace=600) as (session, _):
        await cancel_while_blocked(session.aclose)
        await session.wait_closed()
        assert session.closed


@row("BaseSession.wait_closed")
async def waiting_for_the_close() -> None:
    async with memory_link_pair() as (ours, theirs), BaseSession(*ours) as session:
        await cancel_while_blocked(session.wait_closed)
        assert not session.closed
        await session.send_notification("x")
        assert await methods_sent(theirs) == ["x"]


class OneHandler(BaseSession):
    """Leaves its first request to the test."""

    taken: trio.MemorySendChannel[RequestContext]

    async def received_request(self, context: RequestContext) -> Any:
        await self.taken.send(context)
        await trio.sleep_forever()


@contextlib.asynccontextmanager
async def responder_without_room() -> AsyncIterator[tuple[RequestContext, Link]]:
    """Yield a request that is being handled in a session whose outbox is full."""
    limits = SessionOptions(max_outgoing_messages=1)
    async with memory_link_pair() as (ours, theirs), OneHandler(*ours, options=limits) as session:
        session.taken, taken = trio.open_memory_channel[RequestContext](0)
        await Peer(theirs).request("x", progressToken=5)
        context = await taken.receive()
        await fill(session)
        yield context, theirs


@row("RequestContext.send_notification, report_progress")
async def notifying() -> None:
    async with responder_without_room() as (context, theirs):
        await cancel_while_blocked(lambda: context.send_notification("y"))
        await cancel_while_blocked(lambda: context.report_progress(1))
        assert set(await methods_sent(theirs)) == {"filler"}


@row("an async handler or tool, by its peer")
async def async_handler() -> None:
    reasons: list[str | None] = []
    ended = trio.Event()

    class Session(BaseSession):
        async def received_request(self, context: RequestContext) -> Any:
            try:
                await trio.sleep_forever()
            except trio.Cancelled as exc:
                reasons.append(exc.reason)
                ended.set()
            return {"late": True}

    async with memory_link_pair() as (ours, theirs), Session(*ours):
        peer = Peer(theirs)
        request = await peer.request("x")
        await trio.testing.wait_all_tasks_blocked()
        await peer.cancel(request, reason=REASON)
        await ended.wait()
        assert reasons == [REASON]
        assert await methods_sent(theirs) == []


@row("a sync tool, by its peer")
async def sync_tool() -> None:
    started, go_on, ended = threading.Event(), threading.Event(), threading.Event()
    server = Server("threads", functions=FunctionOptions(max_sync_threads=1))

    @server.tool
    def work() -> None:
        started.set()
        go_on.wait(HANG)
        ended.set()

    async with Client(server) as client:
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(client.call_tool, "work")
                await trio.to_thread.run_sync(started.wait, HANG)
                scope.cancel()
        assert not ended.is_set()
        assert server.settings.surroundings.threads.limiter.borrowed_tokens == 1
        go_on.set()
        assert await trio.to_thread.run_sync(ended.wait, HANG)


SERVED = """
import sys, trio
from trio_mcp import Server
server, scope = Server("s"), trio.CancelScope()

@server.tool
async def stop() -> None:
    scope.cancel("stopped")
    try:
        await trio.sleep_forever()
    except trio.Cancelled:
        print("handler cancelled", file=sys.stderr)
        raise

async def main():
    with scope:
        await server.serve_stdio()
    print("served", file=sys.stderr)

trio.run(main)
"""


@row("Server.serve, Server.serve_stdio")
async def serving() -> None:
    server = Server("s")
    cancelled = trio.Event()

    @server.tool
    async def wait() -> None:
        try:
            await trio.sleep_forever()
        except trio.Cancelled:
            cancelled.set()
            raise

    async with memory_link_pair() as (ours, theirs):
        await Peer(theirs, MODERN).request("tools/call", {"name": "wait"})
        await cancel_while_blocked(lambda: server.serve(ours))
        assert cancelled.is_set()
        with pytest.raises(trio.EndOfChannel):
            await theirs.read.receive()

    parameters = StdioServerParameters(sys.executable, ["-c", SERVED], stderr="discard", env={"PYTHONPATH": str(ROOT)})
    async with Client(parameters) as client:
        with pytest.raises(ProcessExited) as caught:
            await client.call_tool("stop")
    assert caught.value.returncode == 0
    assert caught.value.stderr_tail.splitlines() == ["handler cancelled", "served"]


@row("async with stdio_client(...)")
async def stdio_client_block() -> None:
    server = Stubborn()
    with trio.CancelScope() as scope:
        async with stdio_client(server.parameters):
            await server.started.wait()
            scope.cancel()
            await trio.lowlevel.checkpoint()
    assert server.is_gone()


FLOODED = """
import os, sys, trio
from trio_mcp import SessionMessage, stdio_server
from trio_mcp.jsonrpc.messages import Notification

async def main():
    with trio.CancelScope() as scope:
        async with stdio_server() as link:
            for _ in range(10):
                await link.write.send(SessionMessage(Notification("x", {"text": "y" * 100_000})))
            await trio.testing.wait_all_tasks_blocked()
            scope.cancel()
            await trio.lowlevel.checkpoint()
    print("left", file=sys.stderr, flush=True)
    print("back", flush=True)

import trio.testing
trio.run(main)
"""


@row("async with streamable_http_client(...), sse_client(...)")
async def http_client_block() -> None:
    async def get(asked: Asked) -> None:
        await asked.begin_events()
        await asked.chunk(b"event: endpoint\ndata: /messages\n\n")
        await asked.gone()

    for connect in (streamable_http_client, sse_client):
        async with peer({"GET": get}) as server:
            with trio.CancelScope() as scope:
                async with connect(server.url) as (read, write):
                    if connect is streamable_http_client:
                        params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {}}
                        await write.send(SessionMessage(Request(1, "initialize", params)))
                        await read.receive()
                    scope.cancel()
                    await trio.sleep_forever()
            await server.until_live(0)
            assert server.asked
            assert ("DELETE" in server.methods()) == (connect is streamable_http_client)


@row("async with stdio_server()")
async def stdio_server_block() -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    pipe = subprocess.PIPE
    async with trio.open_nursery() as nursery:
        start = functools.partial(trio.run_process, stdin=pipe, stdout=pipe, stderr=pipe, env=environment)
        process: trio.Process = await nursery.start(start, [sys.executable, "-c", FLOODED])
        assert process.stdout is not None
        assert process.stderr is not None
        said = b""
        while not said.endswith(b"\n"):  # by then nothing of its output has been read
            chunk = await process.stderr.receive_some()
            assert chunk
            said += chunk
        output = b"".join([bytes(part) async for part in process.stdout])
    assert said == b"left\n"
    assert output.endswith(b"back\n")
    assert len(re.findall(b"\n", output)) < 10


@row("async with memory_link_pair()")
async def memory_links() -> None:
    ends: list[Link] = []

    async def use() -> None:
        async with memory_link_pair() as pair:
            ends.extend(pair)
            await trio.sleep_forever()

    await cancel_while_blocked(use)
    for end in ends:
        with pytest.raises(trio.ClosedResourceError):
            await end.read.receive()
        with pytest.raises(trio.ClosedResourceError):
            await end.write.send(SessionMessage(Notification("x")))


async def test_no_cancelled_operation_of_a_session_takes_time(autojump_clock: MockClock) -> None:
    """With a clock that jumps over every wait, a wait on the way out would show as time gone by."""
    before = trio.current_time()
    for check in (
        request,
        opening,
        handshake,
        notification,
        session_close,
        waiting_for_the_close,
        notifying,
    ):
        await check()
    assert trio.current_time() == before
