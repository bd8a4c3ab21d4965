"""Sessions begin and end with their block, their close, or their link; whatever ends them settles everything."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.lowlevel

from tests.peer import Peer
from tests.session.harness import ScriptedServer, client_on_wire, server_on_wire, session_pair
from tests.waiting import steps_within
from trio_mcp import (
    BaseSession,
    ClientSession,
    HandlerOptions,
    LocalProtocolError,
    RequestContext,
    SessionClosed,
    SessionOptions,
    TransportError,
    memory_link_pair,
)
from trio_mcp.jsonrpc.messages import Failure, Notification, Request, Response, SessionMessage


class Oops(Exception):
    pass


@pytest.mark.parametrize("error", [Oops("x"), ExceptionGroup("mine", [Oops("y")]), KeyboardInterrupt(), SystemExit(3)])
async def test_what_is_raised_in_the_block_leaves_it_as_the_very_object(error: BaseException) -> None:
    async with memory_link_pair() as (ours, theirs):
        with pytest.raises(type(error)) as caught:
            async with ScriptedServer(theirs), ClientSession(*ours) as client:
                await client.initialize()
                raise error
        assert caught.value is error


async def test_nothing_is_read_before_the_block_can_add_a_handler() -> None:
    async def handler(params: Any, context: RequestContext) -> dict[str, Any]:
        return {"handled": True}

    async with memory_link_pair() as (ours, theirs):
        await theirs.write.send(SessionMessage(Request(1, "x/waiting", None)))
        async with BaseSession(*ours) as session:
            session.add_request_handler("x/waiting", handler)
            assert (await theirs.read.receive()).message == Response(1, {"handled": True})


async def test_the_blocks_exception_wins_over_a_pending_cancellation_of_nothing() -> None:
    error = Oops("in the block")
    with trio.CancelScope() as scope, pytest.raises(Oops) as caught:
        async with session_pair() as (client, _):
            await client.ping()
            scope.cancel()
            raise error
    assert caught.value is error


async def test_pending_calls_settle_when_the_session_is_closed_from_another_task() -> None:
    outcomes: list[BaseException] = []

    async def call(client: ClientSession) -> None:
        try:
            await client.send_request("tools/call", {"name": "x"})
        except SessionClosed as exc:
            outcomes.append(exc)

    async with client_on_wire() as (client, _):
        async with trio.open_nursery() as nursery:
            for _n in range(5):
                nursery.start_soon(call, client)
            await trio.testing.wait_all_tasks_blocked()
            nursery.start_soon(client.aclose)
        assert len(outcomes) == 5
        assert len({id(outcome) for outcome in outcomes}) == 5  # each caller has an exception of its own
        with pytest.raises(SessionClosed):
            await client.send_request("tools/call", {"name": "x"})
        with pytest.raises(SessionClosed):
            await client.send_notification("acme/x")
        await client.aclose()
        assert client.closed


async def test_the_loss_of_the_link_settles_every_call_with_its_cause() -> None:
    errors: list[Exception] = []

    async def call(client: ClientSession) -> None:
        with pytest.raises(TransportError, match="the wire was cut") as caught:
            await client.send_request("tools/call", {"name": "x"})
        errors.append(caught.value)

    async with client_on_wire() as (client, wire):
        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(call, client)
            await trio.testing.wait_all_tasks_blocked()
            await wire.send(Failure(TransportError("the wire was cut")))
        assert len({id(error) for error in errors}) == 3
        with pytest.raises(TransportError, match="the wire was cut"):
            await client.send_request("tools/call", {"name": "x"})
        await client.wait_closed()


async def test_a_clean_end_settles_calls_and_lets_handlers_finish() -> None:
    release = trio.Event()

    async def answer(context: RequestContext) -> dict[str, Any]:
        await release.wait()
        return {"finished": True}

    async with server_on_wire(answer) as (server, wire), trio.open_nursery() as nursery:
        await wire.send(Request(1, "tools/call", {"name": "x"}))

        async def ask() -> None:
            with pytest.raises(SessionClosed, match="the peer closed the link"):
                await server.send_request("ping")

        nursery.start_soon(ask)
        assert isinstance(await wire.receive(), Request)
        await wire.close()
        await trio.testing.wait_all_tasks_blocked()
        release.set()
        assert await wire.receive() == Response(1, {"finished": True})
        await server.wait_closed()


async def test_handlers_that_do_not_finish_are_cancelled_after_the_grace(
    autojump_clock: trio.testing.MockClock,
) -> None:
    reasons: list[str | None] = []

    async def answer(context: RequestContext) -> dict[str, Any]:
        try:
            await trio.sleep_forever()
        except trio.Cancelled as exc:
            reasons.append(exc.reason)
            raise
        raise AssertionError

    options = SessionOptions(handlers=HandlerOptions(drain_grace=0.5))
    async with server_on_wire(answer, options=options) as (server, wire):
        await wire.send(Request(1, "tools/call", {"name": "x"}))
        await trio.testing.wait_all_tasks_blocked()
        started = trio.current_time()
        await wire.close()
        await server.wait_closed()
        assert trio.current_time() - started == pytest.approx(0.5)
    assert reasons == ["the peer closed the link"]


async def test_messages_handed_over_before_the_close_still_leave() -> None:
    async with memory_link_pair() as (ours, theirs):
        wire = Peer(theirs)
        got: list[str] = []

        async def read() -> None:
            async for message in wire:
                assert isinstance(message, Notification)
                got.append(message.method)
                await trio.lowlevel.checkpoint()

        async with trio.open_nursery() as nursery, BaseSession(*ours) as session:
            for number in range(100):
                await session.send_notification(f"acme/{number}")
            nursery.start_soon(read)
        assert got == [f"acme/{number}" for number in range(100)]


async def test_closing_is_bounded_when_the_peer_does_not_read(autojump_clock: trio.testing.MockClock) -> None:
    async with memory_link_pair() as (ours, _):
        async with BaseSession(*ours, options=SessionOptions(close_grace=2)) as session:
            for number in range(100):
                await session.send_notification(f"acme/{number}")
            started = trio.current_time()
        assert trio.current_time() - started == pytest.approx(2)


async def test_closing_a_session_that_was_never_entered_is_a_no_op() -> None:
    async with memory_link_pair() as (ours, _):
        session = BaseSession(*ours)
        with trio.fail_after(1):
            await session.aclose()


async def test_a_session_is_entered_once() -> None:
    async with memory_link_pair() as (ours, _):
        async with BaseSession(*ours) as session:
            pass
        with pytest.raises(LocalProtocolError, match="only once"):
            async with session:
                pass


async def test_channels_of_the_wrong_type_are_refused() -> None:
    async with memory_link_pair() as (ours, _):
        with pytest.raises(TypeError, match="read must be"):
            BaseSession(ours.write, ours.write)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="write must be"):
            BaseSession(ours.read, "write")  # type: ignore[arg-type]


@pytest.mark.parametrize("closer", ["client", "server", "both", "link", None])
async def test_open_or_closed_an_idle_second_has_no_scheduled_step(
    closer: str | None, autojump_clock: trio.testing.MockClock
) -> None:
    async with (
        memory_link_pair(encode=True) as (ours, theirs),
        ScriptedServer(theirs) as server,
        ClientSession(*ours) as client,
    ):
        await client.initialize()
        await client.send_request("tools/call", {"name": "x"})
        if closer in ("client", "both"):
            await client.aclose()
        if closer in ("server", "both"):
            await server.aclose()
        if closer == "link":
            await ours.write.aclose()
        if closer is not None:
            await server.wait_closed()
            await client.aclose()
        await trio.testing.wait_all_tasks_blocked()
        assert await steps_within(1) == 0
