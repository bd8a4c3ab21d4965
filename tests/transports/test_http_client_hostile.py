"""A hostile server causes one error for one call; it can't use up memory or time."""

from __future__ import annotations

import json
import logging

import pytest
import trio

from tests.http_peer import Asked, event, giving, peer, result, streaming
from tests.transports.http_calls import TEXT, Calls, modern, works
from tests.transports.support import DEADLINE
from trio_mcp import (
    Client,
    NegotiationError,
    TransportError,
)
from trio_mcp.http.client import wire as http_wire


async def test_cookies_are_sent_back_and_bounded_in_number_and_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """A load balancer may tell by a cookie which server holds the session."""
    monkeypatch.setattr(http_wire, "MAX_COOKIES", 5)
    calls = 0

    async def baker(asked: Asked) -> None:
        nonlocal calls
        calls += 1
        body = json.dumps(result(asked.id, TEXT)).encode()
        cookies = f"Set-Cookie: c{calls}=1\r\nSet-Cookie: big={'x' * 5000}\r\n"
        head = f"HTTP/1.1 200 OK\r\n{cookies}Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        await asked.raw(head.encode() + body)

    async with modern(t=baker) as (server, client):
        for _ in range(20):
            await client.call_tool("t")
        sent = [asked.headers.get("cookie", "") for asked in server.asked if asked.rpc == "tools/call"]
    assert sent[1] == "c1=1"
    assert {"c19=1"} <= set(sent[-1].split("; "))
    assert max(len(cookies.split("; ")) for cookies in sent) == 5


@pytest.mark.legacy
@pytest.mark.parametrize("id", ["é", "a\x01", " ", "x" * 5000], ids=["8 bit", "control", "space", "long"])
async def test_an_event_id_that_cannot_be_sent_back_fails_its_call(id: str) -> None:
    """It is not mistaken for our own fault, with a traceback in the log."""
    breaks_off = streaming(lambda asked: f"id: {id}\nretry: 0\ndata:\n\n".encode())
    with trio.fail_after(DEADLINE):
        async with peer({"tools/call": Calls(t=breaks_off)}) as server, Client(server.url) as client:
            with pytest.raises(TransportError, match=r"can't be resumed: the event id '.*' can't be sent back"):
                await client.call_tool("t")
            await works(client)
    assert server.methods().count("GET") == 1


@pytest.mark.legacy
async def test_a_server_that_always_forgets_is_not_asked_for_sessions_endlessly(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.abc.Clock
) -> None:
    """With no calls: a session opened only to hear the server's own messages is not opened again and again."""
    monkeypatch.setattr("trio_mcp.http.client.legacy.session_keeper.UNASKED_INTERVAL", DEADLINE)
    gets = 0

    async def listening(asked: Asked) -> None:
        nonlocal gets
        gets += 1
        if gets % 2 == 0:
            await asked.status(404)
            return
        await asked.events(b"id: 1\nretry: 0\ndata:\n\n")

    with trio.fail_after(DEADLINE):
        async with peer({"GET": listening, "tools/call": Calls()}) as server, Client(server.url) as client:
            await server.until("GET", 4)
            await works(client)
            await trio.sleep(10)
            assert server.methods().count("initialize") == 2


@pytest.mark.legacy
async def test_a_request_that_the_server_cancels_leaves_nothing_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """However many: a refusal of a request that was cancelled is not a failure."""

    async def changes_its_mind(asked: Asked) -> None:
        asks = b""
        for number in range(20):
            asks += event({"jsonrpc": "2.0", "id": number, "method": "x/unknown"})
            asks += event({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": number}})
        await asked.events(asks + event(result(asked.id, TEXT)))

    with trio.fail_after(DEADLINE), caplog.at_level(logging.WARNING, "trio_mcp"):
        async with peer({"tools/call": Calls(t=changes_its_mind)}) as server, Client(server.url) as client:
            await client.call_tool("t")
            await works(client)
    assert caplog.records == []


@pytest.mark.parametrize("host", ["x" * 70 + ".invalid", "xn--a"])
async def test_an_invalid_host_fails_with_a_clear_error(host: str, caplog: pytest.LogCaptureFixture) -> None:
    with trio.fail_after(DEADLINE):
        with pytest.raises(TransportError, match=rf"^POST http://{host}/mcp failed: "):
            async with Client(f"http://{host}/mcp"):
                raise AssertionError("it opened")
    assert caplog.records == []


async def test_a_list_of_revisions_is_not_repeated_in_full() -> None:
    many = giving({"supportedVersions": ["x" * 1000] * 1000, "capabilities": {}})
    with trio.fail_after(DEADLINE):
        async with peer({"server/discover": many}) as server:
            with pytest.raises(NegotiationError, match="the server serves xxx") as caught:
                async with Client(server.url):
                    raise AssertionError("it opened")
    assert len(str(caught.value)) < 3000
