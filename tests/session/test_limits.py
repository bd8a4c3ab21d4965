"""Concurrency limits, bounded queues, lanes: a peer can only slow down itself."""

from __future__ import annotations

import tracemalloc
from collections.abc import Awaitable, Callable, Collection
from typing import Any

import pytest
import trio
import trio.lowlevel

from tests.peer import Peer
from tests.session.harness import client_on_wire, server_on_wire, session_pair
from trio_mcp import SessionOptions
from trio_mcp.jsonrpc.messages import ErrorResponse, Malformed, Notification, Request, Response, SessionMessage
from trio_mcp.low_level import BaseSession, HandlerOptions, RequestContext, memory_link_pair
from trio_mcp.session.outbox import Outbox
from trio_mcp.types.error_codes import OVERLOADED


def messages_waiting(session: BaseSession) -> int:
    statistics = session.statistics()
    return statistics.bulk_waiting + statistics.control_waiting


async def test_requests_beyond_the_limit_wait_and_beyond_the_queue_are_refused() -> None:
    running, most, release = 0, 0, trio.Event()

    async def answer(context: RequestContext) -> dict[str, Any]:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await release.wait()
        running -= 1
        return {}

    options = SessionOptions(handlers=HandlerOptions(max_running_requests=3, max_queued_requests=4))
    async with server_on_wire(answer, options=options) as (server, wire):
        for number in range(10):
            await wire.send(Request(number, "tools/call", {"name": "x"}))
        await trio.testing.wait_all_tasks_blocked()
        statistics = server.statistics()
        assert (statistics.running, statistics.queued, statistics.incoming) == (3, 4, 7)
        refused = wire.arrived()
        assert [m.id for m in refused if isinstance(m, ErrorResponse)] == [7, 8, 9]
        assert all(isinstance(m, ErrorResponse) and m.error.code == OVERLOADED for m in refused)
        assert "3 are running and 4 are waiting" in refused[0].error.message  # type: ignore[union-attr]
        release.set()
        answered = [await wire.receive() for _ in range(7)]
        assert {m.id for m in answered if isinstance(m, Response)} == set(range(7))
        assert most == 3


async def test_a_handler_waits_for_the_peers_answer_while_a_thousand_requests_come_in() -> None:
    """Both sides have full queues towards each other; only readers that never wait get out of that."""

    async def answer(context: RequestContext) -> dict[str, Any]:
        return await server.send_request("roots/list")

    async def list_roots(params: Any, context: RequestContext) -> dict[str, Any]:
        await trio.lowlevel.checkpoint()
        return {"roots": []}

    options = SessionOptions(
        handlers=HandlerOptions(max_running_requests=8, max_queued_requests=2000), max_outgoing_messages=4
    )
    done = 0
    with trio.fail_after(30):
        async with session_pair(answer, client_options=options, server_options=options) as (client, server):
            client.add_request_handler("roots/list", list_roots)

            async def call() -> None:
                nonlocal done
                assert await client.send_request("tools/call", {"name": "x"}) == {"roots": []}
                done += 1

            async with trio.open_nursery() as nursery:
                for _n in range(1000):
                    nursery.start_soon(call)
    assert done == 1000


async def test_a_refused_queue_is_worked_off_without_recursion() -> None:
    """2,000 queued requests that are all refused on the spot when their turn comes."""

    async def answer(context: RequestContext) -> dict[str, Any]:
        await release.wait()
        return {}

    release = trio.Event()
    options = SessionOptions(handlers=HandlerOptions(max_running_requests=1, max_queued_requests=2000))
    async with server_on_wire(answer, options=options) as (_, wire), trio.open_nursery() as nursery:
        await wire.send(Request("first", "tools/call", {"name": "x"}))
        for number in range(2000):
            await wire.send(Request(number, "sampling/createMessage"))
        await trio.testing.wait_all_tasks_blocked()
        got: list[Any] = []

        async def read() -> None:
            while len(got) < 2001:
                got.append(await wire.receive())

        nursery.start_soon(read)
        release.set()
    assert sum(isinstance(m, ErrorResponse) for m in got) == 2000


async def test_a_peer_that_never_reads_stalls_only_itself_with_bounded_memory() -> None:
    async def answer(context: RequestContext) -> dict[str, Any]:
        return {"text": "x" * 1000}

    faults: list[Exception] = []
    options = SessionOptions(
        handlers=HandlerOptions(max_running_requests=8, max_queued_requests=8), on_error=faults.append
    )
    async with (
        server_on_wire(answer, options=options) as (server, wire),
        server_on_wire(answer, options=options) as (_, other),
    ):
        tracemalloc.start()
        try:
            for number in range(9_000):
                await wire.send(Request(number, "tools/call", {"name": "x"}))
                if number == 4_000:
                    before, _peak = tracemalloc.get_traced_memory()
            after, _peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert after - before < 1_000_000, (before, after)
        assert messages_waiting(server) < 3000
        assert sum("responses to it are being dropped" in str(fault) for fault in faults) == 1
        # The other client of the same process is served as ever.
        await other.send(Request(1, "tools/call", {"name": "x"}))
        assert isinstance(await other.receive(), Response)


async def test_answers_that_wait_for_a_slow_peer_are_not_said_to_be_dropped() -> None:
    faults: list[Exception] = []
    async with server_on_wire(options=SessionOptions(on_error=faults.append)) as (server, wire):
        for number in range(500):
            await wire.send(Request(number, "ping"))
        await trio.testing.wait_all_tasks_blocked()
        assert server.statistics().control_waiting > 0
        assert [await wire.receive() for _ in range(500)] == [Response(number, {}) for number in range(500)]
    assert not faults


async def test_garbage_from_a_peer_that_never_reads_is_bounded_too() -> None:
    """In a row it ends the session. With requests in between, what the peer does not read is dropped at some point."""
    async with server_on_wire() as (server, wire):
        for number in range(5_000):
            await wire.send(Malformed(-32700, "garbage"))
            await wire.send(Request(number, "ping"))
        await trio.testing.wait_all_tasks_blocked()
        assert messages_waiting(server) < 3000


@pytest.mark.parametrize(
    ("limit", "size", "sent", "heard"),
    [
        ({"max_pending_notifications": 10}, 1, 100, range(10, 13)),
        ({"max_incoming_bytes": 100_000}, 40_000, 4, [2]),
    ],
)
async def test_notifications_beyond_the_bound_are_dropped_and_said_so(
    limit: dict[str, int], size: int, sent: int, heard: Collection[int], caplog: pytest.LogCaptureFixture
) -> None:
    """In number and in bytes; one alone may have more bytes, else it would never be handled."""
    release = trio.Event()
    got: list[str] = []

    class Slow(BaseSession):
        async def received_notification(self, notification: Notification) -> None:
            await release.wait()
            got.append(notification.method)

    async with memory_link_pair(encode=True) as (ours, theirs):
        wire = Peer(theirs)
        async with Slow(*ours, options=SessionOptions(handlers=HandlerOptions(**limit))):
            for number in range(sent):
                await wire.send(Notification(f"acme/{number}", {"text": "x" * size}))
            await trio.testing.wait_all_tasks_blocked()
            assert "faster than they are handled" in caplog.text
            release.set()
            await trio.testing.wait_all_tasks_blocked()
            await wire.send(Notification("acme/alone", {"text": "x" * 10 * size}))
            await trio.testing.wait_all_tasks_blocked()
    assert got.pop() == "acme/alone"
    assert got == [f"acme/{number}" for number in range(len(got))]
    assert len(got) in heard


async def test_senders_wait_when_the_outbox_is_full_and_go_on_in_order() -> None:
    async with client_on_wire(options=SessionOptions(max_outgoing_messages=4)) as (client, wire):
        sent = 0

        async def send() -> None:
            nonlocal sent
            for number in range(200):
                await client.send_notification(f"acme/{number}")
                sent += 1

        async with trio.open_nursery() as nursery:
            nursery.start_soon(send)
            await trio.testing.wait_all_tasks_blocked()
            assert sent < 80
            got = [await wire.receive() for _ in range(200)]
        assert [m.method for m in got if isinstance(m, Notification)] == [f"acme/{number}" for number in range(200)]


@pytest.mark.parametrize(
    ("kind", "name", "value", "error"),
    [
        (HandlerOptions, "max_running_requests", 0, ValueError),
        (HandlerOptions, "max_queued_requests", True, TypeError),
        (SessionOptions, "max_outgoing_messages", "4", TypeError),
        (HandlerOptions, "max_pending_notifications", -1, ValueError),
        (SessionOptions, "alert_threshold", 0, ValueError),
        (SessionOptions, "calls", 5, TypeError),
        (SessionOptions, "close_grace", -1, ValueError),
        (HandlerOptions, "drain_grace", "x", TypeError),
    ],
)
def test_limits_are_checked(kind: type[Any], name: str, value: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match=name):
        kind(**{name: value})


async def test_what_a_peer_sends_at_once_lets_others_run_while_it_is_reported() -> None:
    """A batch may contain a thousand responses to no request, each a line in the log or a call of ``on_error``."""
    reported: list[Exception] = []
    turns = 0
    async with (
        memory_link_pair() as (ours, _),
        BaseSession(*ours, options=SessionOptions(on_error=reported.append)) as session,
    ):
        for number in range(500):
            session.feed(Response(number, {}))
        while len(reported) < 500:
            await trio.lowlevel.checkpoint()
            turns += 1
    assert turns > 5


# --- the outbox ----------------------------------------------------------------------------------------------------


class Slow(trio.abc.SendChannel[SessionMessage]):
    """Takes one message at a time, and longer for each than for the one before."""

    def __init__(self) -> None:
        self.sent: list[str] = []
        self.sending = trio.Lock()

    async def send(self, value: SessionMessage) -> None:
        async with self.sending:
            for _ in range(10 * (1 + len(self.sent))):
                await trio.lowlevel.checkpoint()
            assert isinstance(value.message, Notification)
            self.sent.append(value.message.method)

    async def aclose(self) -> None:
        pass


async def test_a_writer_ends_when_all_is_written_and_the_next_message_starts_another() -> None:
    slow = Slow()
    async with trio.open_nursery() as nursery:

        def spawn(function: Callable[[], Awaitable[None]]) -> None:
            nursery.start_soon(function)

        outbox = Outbox(slow, spawn)
        for name in ("first", "second"):
            outbox.put(SessionMessage(Notification(name)))
        await outbox.flush()
        assert slow.sent == ["first", "second"]
        outbox.put(SessionMessage(Notification("third")))  # and there is a writer again
        await outbox.flush()
        assert slow.sent[2:] == ["third"]
        nursery.cancel_scope.cancel()
