"""The functions of the sessions, and of the contexts that their handlers get."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
import trio

from tests.checkpoints.table import Check, all_or_nothing, call, cancelled_before, effect
from tests.injection import cancel_everywhere
from tests.peer import Peer, settle
from tests.session.harness import client_on_wire, server_on_wire, session_pair
from trio_mcp import LocalProtocolError
from trio_mcp._nursery import EnteredOnce
from trio_mcp.low_level import BaseSession, ClientSession, Link, RequestContext, memory_link_pair


@contextlib.asynccontextmanager
async def bare() -> AsyncIterator[tuple[BaseSession, Link]]:
    """Yield a session that is neither client nor server, and the other end of its link."""
    async with memory_link_pair() as (ours, theirs), BaseSession(*ours) as session:
        yield session, theirs


# --- lifetime ---------------------------------------------------------------------------------------------------


@call(EnteredOnce.__aenter__, "a session")
@call(EnteredOnce.__aexit__, "a session")
async def session_block(check: Check) -> None:
    async with memory_link_pair() as (ours, _), check.block(BaseSession(*ours)):
        pass
    async with memory_link_pair() as (ours, _), check.block(BaseSession(*ours)) as session:
        await session.aclose()


@call(BaseSession.aclose, "never entered, open, closed already")
async def close(check: Check) -> None:
    async with memory_link_pair() as (ours, _):
        await check(BaseSession(*ours).aclose())
    async with bare() as (session, _):
        await check(session.aclose())
        await check(session.aclose())


@call(BaseSession.wait_closed, "closed later, and already")
async def wait_closed(check: Check) -> None:
    async with bare() as (session, _), trio.open_nursery() as nursery:
        nursery.start_soon(check, session.wait_closed())
        await settle()
        await session.aclose()
        await check(session.wait_closed())


def waiting(function: Any) -> None:
    @call(function, "nothing runs, and something")
    async def wait(check: Check) -> None:
        release = trio.Event()

        async def answer(context: RequestContext) -> dict[str, Any]:
            await release.wait()
            return {}

        async with session_pair(answer) as (client, server), trio.open_nursery() as nursery:
            await check(function(server))
            nursery.start_soon(client.send_request, "tools/call", {})
            await settle()
            nursery.start_soon(check, function(server))
            await settle()
            release.set()


waiting(BaseSession.wait_idle)
waiting(BaseSession.wait_settled)


# --- what is sent -----------------------------------------------------------------------------------------------


@call(BaseSession.send_notification, "there is room")
async def send_notification(check: Check) -> None:
    async with bare() as (session, theirs):
        await check(session.send_notification("acme/x"))
        await theirs.read.receive()


@effect(BaseSession.send_notification, "sent or cancelled")
async def sent() -> None:
    async with bare() as (session, theirs):
        await sent_or_cancelled(lambda number: session.send_notification("acme/x"), theirs)


async def sent_or_cancelled(send: Callable[[int], Awaitable[object]], theirs: Link) -> None:
    """Check that a send cancelled at any step has either sent its message or raises `Cancelled`."""
    arrived: list[Any] = []

    async def count() -> int:
        arrived.extend(Peer(theirs).arrived())
        return len(arrived)

    await all_or_nothing(send, count)


@call(BaseSession.send_request, "answered")
async def send_request(check: Check) -> None:
    async with session_pair() as (client, _):
        await check(client.send_request("tools/call", {}))
        await check(client.send_request("tools/call", {}, on_progress=lambda progress: None))


@effect(BaseSession.send_request, "nothing is sent")
async def nothing_sent() -> None:
    async with bare() as (session, theirs):
        await cancelled_before(session.send_request("acme/x"))
        await settle()
        assert not Peer(theirs).arrived()
        assert session.statistics().outgoing == 0


OPENING: dict[Any, tuple[str, Callable[[ClientSession], Awaitable[object]]]] = {
    ClientSession.initialize: ("2025-11-25", lambda session: session.initialize()),
    ClientSession.discover: ("2026-07-28", lambda session: session.discover()),
    ClientSession.negotiate: ("2026-07-28", lambda session: session.negotiate()),
}


def opening(function: Any, revision: str, make: Callable[[ClientSession], Awaitable[object]]) -> None:
    @call(function, "opened")
    async def opened(check: Check) -> None:
        async with unopened(revision) as (session, peer), trio.open_nursery() as nursery:
            nursery.start_soon(peer.greet)
            await check(make(session))

    @effect(function, "nothing is sent")
    async def nothing_sent() -> None:
        async with unopened(revision) as (session, peer):
            await cancelled_before(make(session))
            await settle()
            assert not peer.arrived()

    @effect(function, "open or cancelled")
    async def open_or_cancelled() -> None:
        async def scenario() -> None:
            async with unopened(revision) as (session, peer), trio.open_nursery() as nursery:
                nursery.start_soon(peer.greet)
                try:
                    await make(session)
                except trio.Cancelled:
                    with pytest.raises(LocalProtocolError, match="not open yet"):
                        _ = session.server
                    raise

        await cancel_everywhere(scenario, settle)


@contextlib.asynccontextmanager
async def unopened(revision: str) -> AsyncIterator[tuple[ClientSession, Peer]]:
    async with memory_link_pair() as (ours, theirs), ClientSession(*ours) as session:
        yield session, Peer(theirs, revision)


for function, (revision, make) in OPENING.items():
    opening(function, revision, make)


@call(ClientSession.negotiate, "the handshake first")
async def handshake_first(check: Check) -> None:
    async with unopened("2025-11-25") as (session, peer), trio.open_nursery() as nursery:
        nursery.start_soon(peer.greet)
        await check(session.negotiate(handshake_first=True))


@call(ClientSession.ping, "answered")
async def ping(check: Check) -> None:
    async with session_pair() as (client, _):
        await check(client.ping())


@effect(ClientSession.ping, "nothing is sent")
async def no_ping() -> None:
    async with client_on_wire() as (session, wire):
        await cancelled_before(session.ping())
        await settle()
        assert not wire.arrived()


# --- what a handler is given ------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def served(**meta: Any) -> AsyncIterator[tuple[RequestContext, Peer, trio.Event]]:
    """Yield the context of a running request, the other end, and the event that ends the request."""
    contexts: list[RequestContext] = []
    release = trio.Event()

    async def answer(context: RequestContext) -> dict[str, Any]:
        contexts.append(context)
        await release.wait()
        return {}

    async with server_on_wire(answer) as (_, wire):
        await wire.request("tools/call", {}, **meta)
        await settle()
        yield contexts[0], wire, release


@call(RequestContext.send_notification, "sent, and after the answer")
async def context_notification(check: Check) -> None:
    async with served() as (context, _, release):
        await check(context.send_notification("acme/x"))
        release.set()
        await settle()
        await check(context.send_notification("acme/x"))


@call(RequestContext.report_progress, "asked for, not growing, and after the answer")
async def report_progress(check: Check) -> None:
    async with served(progressToken="t") as (context, _, release):
        await check(context.report_progress(1))
        await check(context.report_progress(1))
        release.set()
        await settle()
        await check(context.report_progress(2))


@call(RequestContext.report_progress, "not asked for")
async def unwanted_progress(check: Check) -> None:
    async with served() as (context, _, _):
        await check(context.report_progress(1, 3, "one"))


@effect(RequestContext.send_notification, "sent or cancelled")
async def context_sent() -> None:
    async with served() as (context, wire, _):
        await sent_or_cancelled(lambda number: context.send_notification("acme/x"), wire.link)


@effect(RequestContext.report_progress, "sent or cancelled")
async def progress_sent() -> None:
    async with served(progressToken="t") as (context, wire, _):
        await sent_or_cancelled(context.report_progress, wire.link)
