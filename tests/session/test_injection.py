"""A cancellation at every checkpoint of call, notify, connect and close leaves the sessions consistent."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.lowlevel

from tests.injection import cancel_after, cancel_everywhere
from tests.session.harness import CLIENT_CAPABILITIES, ScriptedServer, session_pair
from trio_mcp import SessionOptions
from trio_mcp.low_level import ClientSession, HandlerOptions, RequestContext, memory_link_pair


async def work(context: RequestContext) -> dict[str, Any]:
    for number in range(3):
        await context.report_progress(number)
        await trio.lowlevel.checkpoint()
    return {"echo": context.params.get("arguments")}


async def settle(client: ClientSession, server: ScriptedServer) -> None:
    """Check that nothing is in flight any more, and the sessions still work."""
    assert client.statistics().outgoing == 0
    await trio.testing.wait_all_tasks_blocked()
    served = server.statistics()
    assert (served.running, served.incoming) == (0, 0)
    assert client.statistics().flushed
    assert served.flushed
    assert await client.send_request("tools/call", {"name": "x", "arguments": {"n": 7}}) == {"echo": {"n": 7}}


@pytest.mark.parametrize("callback", [None, "sync", "async"])
@pytest.mark.parametrize(("outgoing", "over_sockets"), [(1, False), (64, False), (64, True)])
async def test_a_call(callback: str | None, outgoing: int, over_sockets: bool) -> None:
    async def slowly(event: Any) -> None:
        await trio.lowlevel.checkpoint()

    options = SessionOptions(max_outgoing_messages=outgoing)
    on_progress = {None: None, "sync": lambda event: None, "async": slowly}[callback]
    pair = session_pair(work, client_options=options, server_options=options, over_sockets=over_sockets)
    async with pair as (client, server):

        async def scenario() -> None:
            await client.send_request("tools/call", {"name": "x"}, on_progress=on_progress)

        places = await cancel_everywhere(scenario, lambda: settle(client, server))
        assert places >= 5


@pytest.mark.parametrize(("over_sockets", "count"), [(False, 40), (True, 10)])
async def test_many_calls_at_once(over_sockets: bool, count: int) -> None:
    options = SessionOptions(max_outgoing_messages=2, handlers=HandlerOptions(max_running_requests=3))
    pair = session_pair(work, client_options=options, server_options=options, over_sockets=over_sockets)
    async with pair as (client, server):

        async def scenario() -> None:
            async with trio.open_nursery() as nursery:
                for _ in range(count):
                    nursery.start_soon(client.send_request, "tools/call", {"name": "x"})

        assert await cancel_everywhere(scenario, lambda: settle(client, server)) >= 5 * count


async def test_a_notification() -> None:
    async with session_pair(work) as (client, server):
        assert await cancel_everywhere(lambda: client.send_notification("acme/x"), lambda: settle(client, server)) >= 1


async def test_a_servers_request_to_the_client() -> None:
    async def ask(context: RequestContext) -> dict[str, Any]:
        await server.send_request("roots/list")
        return {"echo": context.params.get("arguments")}

    async def roots(params: Any, context: RequestContext) -> dict[str, Any]:
        await trio.lowlevel.checkpoint()
        return {"roots": []}

    async with session_pair(ask) as (client, server):
        client.add_request_handler("roots/list", roots)

        async def check() -> None:
            await settle(client, server)
            assert server.statistics().outgoing == 0
            assert client.statistics().running == 0

        assert await cancel_everywhere(lambda: client.send_request("tools/call", {"name": "x"}), check) >= 4


@pytest.mark.parametrize("mode", ["initialize", "discover", "negotiate"])
async def test_connecting_using_and_closing(mode: str) -> None:
    sessions: list[Any] = []
    tasks = trio.lowlevel.current_statistics().tasks_living

    async def scenario() -> None:
        async with memory_link_pair(encode=True) as (ours, theirs):
            server = ScriptedServer(theirs, work)
            client = ClientSession(*ours, capabilities=CLIENT_CAPABILITIES)
            sessions[:] = [server, client]
            async with server, client:
                await getattr(client, mode)()
                await client.send_request("tools/call", {"name": "x"}, on_progress=lambda _: None)
                await client.send_notification("acme/x")
                await client.aclose()

    async def check() -> None:
        for session in sessions:
            left = session.statistics()
            assert (left.outgoing, left.incoming, left.running) == (0, 0, 0)
        await trio.testing.wait_all_tasks_blocked()
        assert trio.lowlevel.current_statistics().tasks_living == tasks

    assert await cancel_everywhere(scenario, check) >= 30


async def test_a_close_cancelled_anywhere_still_closes() -> None:
    for step in range(1, 100):
        async with session_pair(work, client_options=SessionOptions(close_grace=0.01)) as (client, server):
            for _ in range(100):
                await client.send_notification("acme/x")
            cancelled = await cancel_after(step, client.aclose)
            with trio.fail_after(5):
                await client.wait_closed()
                await server.wait_closed()
            assert client.closed
            assert server.closed
        if not cancelled:
            break
    assert step > 2
