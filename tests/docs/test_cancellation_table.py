"""Every row of the table in docs/explanation/sessions.md: what each public operation does when it is cancelled.

Most rows are rules that other tests hold; `HELD` says which. The others are checked here.
"""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable

import pytest
import trio
import trio.testing

from tests.client.listening import MODERN
from tests.client.scripted import scripted
from tests.docs.pages import ROOT
from tests.peer import ENVIRONMENT, Peer, settle
from trio_mcp import CallOptions, Client, Server, SessionOptions, StdioServerParameters
from trio_mcp.low_level import BaseSession, ClientSession, memory_link_pair, stdio_client

HANG = 30  # seconds; only a net, nothing here waits that long
CHECKS: dict[str, Callable[[], Awaitable[None]]] = {}

HELD = {
    "Client.call_tool, list_tools, iter_tools, request, ping": "requirements/rows/cancellation.py::scope",
    "Client.call_tool, get_prompt, read_resource, while a callback gives input": (
        "client/test_input_rounds.py::test_cancelling_the_call_cancels_the_callbacks_and_nothing_is_sent"
    ),
    "Client.set_roots": "checkpoints/client_rows.py::roots_in_the_legacy_era",
    "BaseSession.send_request": (
        "transports/test_http_client_legacy.py::"
        "test_a_cancelled_call_sends_the_notice_and_a_slow_answer_to_it_delays_nothing "
        "session/test_cancellation.py::test_a_cancelled_caller_returns_at_once_even_if_the_peer_does_not_read"
    ),
    "BaseSession.send_notification": "checkpoints/session_rows.py::sent",
    "a call that waits for an access token": (
        "auth/engine/test_oauth.py::test_a_refresh_that_was_sent_is_finished_whichever_task_leaves "
        "auth/engine/test_oauth.py::test_the_last_one_who_leaves_ends_a_login "
        "auth/engine/test_oauth.py::test_one_who_leaves_does_not_end_the_login_of_others"
    ),
    "signing in and out with an OAuth": "checkpoints/auth_rows.py::signed_in checkpoints/auth_rows.py::signed_out",
    "RequestContext.send_notification, report_progress": (
        "checkpoints/session_rows.py::context_sent checkpoints/session_rows.py::progress_sent"
    ),
    "an async handler or tool, by its peer": (
        "requirements/rows/cancellation.py::stops session/test_cancellation.py::"
        "test_nothing_more_is_sent_by_a_handler_that_finishes_despite_its_cancellation"
    ),
    "a sync tool, by its peer": "server/test_sync_tools.py::test_cancelling_a_call_returns_at_once",
    "async with streamable_http_client(...), sse_client(...)": (
        "transports/test_http_client_legacy.py::"
        "test_a_session_ends_with_a_delete_that_a_silent_server_cannot_hold_up "
        "transports/test_http_client_injection.py::test_a_client_that_is_cancelled_anywhere_leaves_nothing_open"
    ),
    "async with memory_link_pair()": (
        "transports/test_memory.py::test_cancellation_at_every_step_leaves_both_ends_consistent "
        "transports/test_memory.py::test_leaving_the_block_wakes_every_waiting_task"
    ),
}
"""The rows that tests elsewhere hold, below ``tests``."""


def row(operation: str) -> Callable[[Callable[[], Awaitable[None]]], Callable[[], Awaitable[None]]]:
    """Register a function as the check of the row that begins with this text."""

    def register(check: Callable[[], Awaitable[None]]) -> Callable[[], Awaitable[None]]:
        CHECKS[operation] = check
        return check

    return register


def rows_of_the_page() -> list[str]:
    page = (ROOT / "docs" / "explanation" / "sessions.md").read_text()
    table = page.partition("| operation | when cancelled |\n|---|---|\n")[2].partition("\n\n")[0]
    return [line.split(" | ")[0].removeprefix("| ").replace("`", "") for line in table.splitlines()]


@pytest.mark.parametrize("operation", rows_of_the_page())
async def test_a_row(operation: str) -> None:
    if operation in HELD:
        for test in HELD[operation].split():
            file, _, name = test.partition("::")
            assert f"def {name}(" in (ROOT / "tests" / file).read_text(), test
        return
    with trio.fail_after(HANG):
        await CHECKS[operation]()


def test_the_page_has_all_rows() -> None:
    assert sorted(rows_of_the_page()) == sorted([*CHECKS, *HELD])


# --- what the checks are made of ----------------------------------------------------------------------------------


async def cancel_while_blocked(operation: Callable[[], Awaitable[object]]) -> None:
    """Start an operation, cancel it when it waits, and see that it leaves."""
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:

            @nursery.start_soon
            async def cancel() -> None:
                await trio.testing.wait_all_tasks_blocked()
                scope.cancel()

            await operation()
    assert scope.cancelled_caught


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
    """The loop is that of `tests/client/test_listen_coalescing.py`."""
    async with scripted({}, revision=MODERN) as (client, asked, wire):

        async def enter() -> None:
            async with client.listen(tools_list_changed=True):
                raise AssertionError

        await cancel_while_blocked(enter)
        await settle()
        assert [(note.params or {})["requestId"] for note in wire.heard] == [asked[0].id]


async def opening(*sent: str) -> None:
    """Cancel the function that begins with the first of these messages; it must send just these."""
    names = {"initialize": ["initialize"], "server/discover": ["discover", "negotiate"], "ping": ["ping"]}
    for name in names[sent[0]]:
        async with memory_link_pair() as (ours, theirs), ClientSession(*ours) as session:
            await cancel_while_blocked(getattr(session, name))
            await settle()
            assert [message.method for message in Peer(theirs).arrived()] == [*sent]
            with pytest.raises(Exception, match="not open yet"):
                assert session.server


@row("ClientSession.discover, negotiate, ping")
async def told_to_the_peer() -> None:
    for method in ("server/discover", "ping"):
        await opening(method, "notifications/cancelled")


@row("ClientSession.initialize")
async def not_told_to_the_peer() -> None:
    await opening("initialize")


@row("BaseSession.aclose")
async def session_close() -> None:
    async with memory_link_pair() as (ours, _), BaseSession(*ours, options=SessionOptions(close_grace=600)) as session:
        for _number in range(100):
            await session.send_notification("filler")
        await cancel_while_blocked(session.aclose)
        await session.wait_closed()


@row("BaseSession.wait_closed")
async def waiting_for_the_close() -> None:
    async with memory_link_pair() as (ours, theirs), BaseSession(*ours) as session:
        await cancel_while_blocked(session.wait_closed)
        await session.send_notification("x")
        await settle()
        assert [message.method for message in Peer(theirs).arrived()] == ["x"]


@row("Server.serve, Server.serve_stdio")
async def serving() -> None:
    """Over stdio the link is that of `stdio_server` below."""
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
from trio_mcp.low_level import SessionMessage, stdio_server
from trio_mcp.jsonrpc.messages import Notification

async def main():
    with trio.CancelScope() as scope:
        async with stdio_server() as link:
            for _ in range(2):  # the pipe has no room for the first, nor the link for a third
                await link.write.send(SessionMessage(Notification("x", {"text": "y" * 100_000})))
            await trio.testing.wait_all_tasks_blocked()
            scope.cancel()
            await trio.lowlevel.checkpoint()
    print("left", file=sys.stderr, flush=True)
    print("back", flush=True)

import trio.testing
trio.run(main)
"""


@row("async with stdio_server()")
async def stdio_server_block() -> None:
    pipe = subprocess.PIPE
    async with trio.open_nursery() as nursery:
        start = functools.partial(trio.run_process, stdin=pipe, stdout=pipe, stderr=pipe, env=ENVIRONMENT)
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
    assert output.count(b"\n") < 3
