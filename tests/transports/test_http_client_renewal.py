"""The legacy era over HTTP: a session that the server forgets.

L: 2025-11-25 `basic/transports`, Streamable HTTP.
"""

from __future__ import annotations

import logging
from typing import Any

import httpx
import pytest
import trio

from tests.http_peer import INITIALIZED, Asked, event, giving, peer, plain
from tests.transports.http_legacy import CHANGED, QUICK, Restarting, legacy, text
from tests.transports.support import DEADLINE
from trio_mcp import (
    Client,
    HttpError,
    RemoteProtocolError,
    SessionOptions,
    TransportError,
    streamable_http_client,
)

pytestmark = pytest.mark.legacy


async def test_a_lost_session_leads_to_exactly_one_new_handshake_for_all_who_call() -> None:
    """L, Session Management, 4; each call is sent again: a server that does not know the session has done nothing."""
    restarting = Restarting()
    async with legacy(restarting.handlers()) as (server, client):
        assert await text(client) == "ok"
        restarting.number = 2
        async with trio.open_nursery() as nursery:
            for _ in range(20):
                nursery.start_soon(text, client)
        assert await text(client) == "ok"
        methods = server.methods()
        assert methods.count("initialize") == 2
        assert methods.count("notifications/initialized") == 2
        first, second = (asked.body for asked in server.asked if asked.rpc == "initialize")
        assert first["params"] == second["params"]
        await server.until("GET", 2)
    assert server.asked[-1].headers["mcp-session-id"] == "s2"


async def test_a_call_that_finds_out_late_uses_the_session_that_there_is() -> None:
    restarting, renewed = Restarting(), trio.Event()

    async def call(asked: Asked) -> None:
        if asked.body["params"]["name"] == "late" and asked.headers["mcp-session-id"] == "s1":
            await renewed.wait()
        await restarting.call(asked)

    async with legacy({**restarting.handlers(), "tools/call": call}) as (server, client):
        restarting.number = 2
        async with trio.open_nursery() as nursery:
            nursery.start_soon(text, client, "late")
            await server.until("tools/call")
            assert await text(client) == "ok"
            renewed.set()
        assert server.methods().count("initialize") == 2


async def test_a_server_that_always_forgets_is_asked_twice_and_no_more() -> None:
    restarting = Restarting()
    async with legacy(restarting.handlers()) as (server, client):
        restarting.refuse_all = True
        with pytest.raises(HttpError, match="make a new Client") as caught:
            await client.call_tool("t")
        assert caught.value.trouble == "session_lost"
        assert server.methods().count("tools/call") == 2
        restarting.refuse_all = False
        assert await text(client) == "ok"


async def test_a_handshake_that_fails_then_fails_each_call_with_its_own_error() -> None:
    restarting = Restarting()
    async with legacy(restarting.handlers()) as (server, client):
        restarting.number = 2
        refused = plain(503, Retry_After="2")
        server.handlers["initialize"] = refused
        errors: list[HttpError] = []

        async def call() -> None:
            with pytest.raises(HttpError) as caught:
                await client.call_tool("t")
            errors.append(caught.value)

        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(call)
        assert {(error.status, error.retry_after) for error in errors} == {(503, 2.0)}
        assert len(set(map(id, errors))) == 3
        server.handlers["initialize"] = restarting.initialize
        assert await text(client) == "ok"


async def test_a_server_that_returns_with_a_different_revision_is_refused() -> None:
    restarting = Restarting()
    async with legacy(restarting.handlers()) as (server, client):
        restarting.number = 2
        older = giving({**INITIALIZED, "protocolVersion": "2025-03-26"}, Mcp_Session_Id="s2")
        server.handlers["initialize"] = older
        with pytest.raises(TransportError, match="now speaks '2025-03-26' instead of '2025-11-25'"):
            await client.call_tool("t")
        with pytest.raises(TransportError, match="now speaks"):
            await client.call_tool("t")


@pytest.mark.parametrize("refused", ["GET", "DELETE", "initialize"])
async def test_what_a_hook_of_the_callers_client_raises_costs_one_exchange(
    refused: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Authentication is such a hook; it may fail when the link listens, opens another session, or ends one."""
    restarting, armed, faults, told = Restarting(), False, list[RemoteProtocolError](), trio.Event()

    async def hook(request: httpx.Request) -> None:
        if armed and (refused == request.method or f'"{refused}"'.encode() in request.content):
            raise LookupError("no token")

    def on_error(fault: RemoteProtocolError) -> None:
        faults.append(fault)
        told.set()

    async def get(asked: Asked) -> None:
        if asked.headers["mcp-session-id"] != restarting.session:
            await asked.status(404)
            return
        await asked.begin_events()
        await asked.chunk(event(CHANGED, "e1"))
        await asked.end_events()

    with trio.fail_after(DEADLINE), caplog.at_level(logging.CRITICAL, "trio_mcp"):
        async with (
            peer({**restarting.handlers(), "GET": get}) as server,
            httpx.AsyncClient(event_hooks={"request": [hook]}) as http_client,
        ):

            def connect() -> Any:
                return streamable_http_client(server.url, http_client=http_client, reconnect=QUICK)

            async with Client(connect, mode="legacy", options=SessionOptions(on_error=on_error)) as client:
                await server.until("GET")
                armed = True
                if refused == "initialize":
                    restarting.number = 2
                    with pytest.raises(TransportError, match="no token"):
                        await client.call_tool("t")
                    armed = False
                elif refused == "GET":
                    await told.wait()
                    assert "no token" in str(faults[0])
                assert await text(client) == "ok"
