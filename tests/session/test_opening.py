"""Opening a session in either era, and what may be sent then."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from tests.peer import Peer
from tests.session.harness import ScriptedServer, client_on_wire, server_on_wire, session_pair
from trio_mcp import (
    CallOptions,
    CapabilityError,
    ClientSession,
    LocalProtocolError,
    McpError,
    NegotiationError,
    SessionOptions,
    memory_link_pair,
)
from trio_mcp.eras.server_negotiation import ServerIdentity
from trio_mcp.jsonrpc.messages import ErrorData, ErrorResponse, Notification, Request, Response
from trio_mcp.types.versions import LEGACY_REVISIONS, MODERN_REVISIONS


def server_of(*revisions: str) -> ServerIdentity:
    return ServerIdentity({"name": "t", "version": "1"}, lambda revision: {"tools": {}}, revisions=revisions)


@pytest.mark.parametrize(
    ("revisions", "spoken"),
    [
        (("2024-11-05",), "2024-11-05"),
        (("2025-03-26", "2025-06-18"), "2025-06-18"),
        (MODERN_REVISIONS, "2026-07-28"),
        ((*LEGACY_REVISIONS, *MODERN_REVISIONS), "2026-07-28"),
    ],
)
async def test_negotiation_finds_the_newest_era(revisions: tuple[str, ...], spoken: str) -> None:
    async with (
        memory_link_pair() as (ours, theirs),
        ScriptedServer(theirs, identity=server_of(*revisions)),
        ClientSession(*ours) as client,
    ):
        assert (await client.negotiate()).revision == spoken
        assert client.server.info == {"name": "t", "version": "1"}
        await client.send_request("tools/call", {"name": "x"})


async def negotiate_with(*answers: Any, **calls: Any) -> tuple[ClientSession, list[Any]]:
    """Negotiate with a server that gives these answers, one after the other; None is silence."""
    asked: list[Any] = []
    options = SessionOptions(calls=CallOptions(**calls))
    async with memory_link_pair() as (ours, theirs), ClientSession(*ours, options=options) as client:
        wire = Peer(theirs)
        async with trio.open_nursery() as nursery:

            async def serve() -> None:
                left = list(answers)
                while left:
                    message = await wire.receive()
                    asked.append(message)
                    if not isinstance(message, Request):
                        continue
                    answer = left.pop(0)
                    if isinstance(answer, ErrorData):
                        await wire.send(ErrorResponse(message.id, answer))
                    elif answer is not None:
                        await wire.send(Response(message.id, answer))

            nursery.start_soon(serve)
            failure: Exception | None = None
            try:
                await client.negotiate()
            except Exception as exc:
                failure = exc
            nursery.cancel_scope.cancel()
        if failure is not None:
            raise failure
        return client, asked


LEGACY = {"protocolVersion": "2025-06-18", "capabilities": {}, "serverInfo": {"name": "old", "version": "1"}}
MODERN = {"resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": {}}


@pytest.mark.parametrize(
    "probe",
    [
        ErrorData(-32601, "Method not found"),
        ErrorData(-32602, "Invalid request parameters"),
        ErrorData(-32000, "Server not initialized"),
        ErrorData(0, "?"),
        {},
        {"supportedVersions": "2026-07-28", "capabilities": {}},
        {"supportedVersions": ["2025-11-25"], "capabilities": {}},
        ErrorData(-32022, "Unsupported protocol version", {"supported": ["2025-06-18"], "requested": "2026-07-28"}),
    ],
)
async def test_anything_but_modern_evidence_means_the_handshake(probe: Any) -> None:
    client, asked = await negotiate_with(probe, LEGACY)
    assert client.server.revision == "2025-06-18"
    assert [message.method for message in asked] == ["server/discover", "initialize"]


async def test_silence_means_the_handshake_too(autojump_clock: trio.testing.MockClock) -> None:
    started = trio.current_time()
    client, asked = await negotiate_with(None, LEGACY, probe_timeout=3)
    assert trio.current_time() - started == pytest.approx(3)
    assert client.server.revision == "2025-06-18"
    assert [message.method for message in asked][:3] == ["server/discover", "notifications/cancelled", "initialize"]


async def test_a_modern_error_is_never_answered_with_a_handshake() -> None:
    for error in (
        ErrorData(-32022, "Unsupported protocol version", {"supported": ["2099-01-01"], "requested": "2026-07-28"}),
        ErrorData(-32021, "capability", {"requiredCapabilities": {}}),
        ErrorData(-32020, "header"),
        ErrorData(-32022, "unsupported"),
    ):
        with pytest.raises(NegotiationError):
            await negotiate_with(error)


async def test_discovery_without_a_revision_in_common_says_so() -> None:
    async with memory_link_pair() as (ours, theirs), ClientSession(*ours) as client, trio.open_nursery() as nursery:

        async def answer() -> None:
            wire = Peer(theirs)
            request = await wire.expect(Request)
            await wire.send(Response(request.id, {**MODERN, "supportedVersions": ["2099-01-01"]}))

        nursery.start_soon(answer)
        with pytest.raises(NegotiationError, match="serves no modern revision that this client speaks"):
            await client.discover()


async def test_a_refusal_that_names_the_very_revision_as_supported_is_tried_once_more() -> None:
    """2026-07-28 `basic/versioning`: select a version from the `supported` list and retry the request."""
    refusal = ErrorData(-32022, "not now", {"supported": ["2026-07-28"], "requested": "2026-07-28"})
    client, asked = await negotiate_with(refusal, MODERN)
    assert client.server.revision == "2026-07-28"
    assert [message.method for message in asked] == ["server/discover", "server/discover"]
    with pytest.raises(NegotiationError, match="the server serves 2026-07-28, but refuses it"):
        await negotiate_with(refusal, refusal)


async def test_a_handshake_refused_with_modern_evidence_leads_back_to_discovery(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """The probe was too slow for the client, not for the server, which is modern after all."""
    refusal = ErrorData(-32022, "no handshake here", {"supported": ["2026-07-28"]})
    client, asked = await negotiate_with(None, refusal, MODERN, probe_timeout=1)
    assert client.server.revision == "2026-07-28"
    assert [m.method for m in asked if isinstance(m, Request)] == ["server/discover", "initialize", "server/discover"]


async def test_a_handshake_that_fails_says_so() -> None:
    with pytest.raises(McpError, match="no room"):
        await negotiate_with(ErrorData(-32601, "?"), ErrorData(-32000, "no room"))
    with pytest.raises(NegotiationError, match="1999-01-01"):
        await negotiate_with(ErrorData(-32601, "?"), {**LEGACY, "protocolVersion": "1999-01-01"})
    with pytest.raises(NegotiationError, match="lacks"):
        await negotiate_with(ErrorData(-32601, "?"), {"hello": "world"})


# --- before and after ----------------------------------------------------------------------------------------------


async def test_requests_pipelined_behind_initialize_are_served_in_order() -> None:
    async with server_on_wire(open_it=False) as (_, wire):
        await wire.send(Request(0, "ping"))  # a ping may even come before (`basic/lifecycle`)
        assert await wire.receive() == Response(0, {})
        await wire.send(Request(1, "initialize", wire.hello()))
        await wire.send(Notification("notifications/initialized"))
        await wire.send(Request(2, "tools/call", {"name": "x", "arguments": {}}))
        first, second = await wire.receive(), await wire.receive()
        assert isinstance(first, Response)
        assert first.result["protocolVersion"] == "2025-11-25"
        assert second == Response(2, {"echo": {}})


async def test_a_client_sends_nothing_before_it_is_open_and_opens_once() -> None:
    async with session_pair() as (client, _):
        with pytest.raises(LocalProtocolError, match="already open"):
            await client.initialize()
        with pytest.raises(LocalProtocolError, match="already open"):
            await client.discover()
    async with memory_link_pair() as (ours, _theirs), ClientSession(*ours) as fresh:
        with pytest.raises(LocalProtocolError, match="before initialize"):
            await fresh.send_request("tools/list")
        with pytest.raises(LocalProtocolError, match="not open yet"):
            _ = fresh.server
        with pytest.raises(ValueError, match="revision must be one of"):
            await fresh.initialize("2026-07-28")
        with pytest.raises(ValueError, match="revision must be one of"):
            await fresh.discover("2025-11-25")


async def test_a_client_asks_for_nothing_that_the_server_has_not_declared() -> None:
    async with client_on_wire() as (client, wire):
        with pytest.raises(CapabilityError, match=r"'prompts/list' needs the server capability 'prompts'") as caught:
            await client.send_request("prompts/list")
        assert (caught.value.capability, caught.value.side) == ("prompts", "server")
        with pytest.raises(LocalProtocolError, match="not a method of revision 2025-11-25"):
            await client.send_request("subscriptions/listen")
        with pytest.raises(LocalProtocolError, match="a client may send"):
            await client.send_request("sampling/createMessage")
        await trio.testing.wait_all_tasks_blocked()
        assert wire.arrived() == []


async def test_a_modern_client_has_no_ping() -> None:
    async with session_pair(mode="modern") as (client, _):
        with pytest.raises(LocalProtocolError, match="'ping' is not a method of revision 2026-07-28"):
            await client.ping()


async def test_a_server_asks_for_nothing_that_the_client_has_not_declared() -> None:
    async with session_pair(capabilities={}) as (_, server):
        with pytest.raises(CapabilityError, match=r"needs the client capability 'sampling'") as caught:
            await server.send_request("sampling/createMessage", {})
        assert caught.value.side == "client"
        with pytest.raises(CapabilityError, match=r"needs the server capability"):
            await server.send_notification("notifications/resources/list_changed")
        with pytest.raises(LocalProtocolError, match="a server may send"):
            await server.send_request("tools/list")


async def test_a_modern_client_is_never_asked_outside_a_request() -> None:
    async with session_pair(mode="modern") as (_, server):
        with pytest.raises(LocalProtocolError, match="handshake"):
            await server.send_request("roots/list")
        with pytest.raises(LocalProtocolError, match="handshake"):
            await server.send_notification("notifications/tools/list_changed")


async def test_a_server_asks_nothing_before_the_handshake_is_confirmed() -> None:
    async with server_on_wire(open_it=False) as (server, wire):
        params = {
            "protocolVersion": "2025-11-25",
            "capabilities": {"roots": {}},
            "clientInfo": {"name": "w", "version": "1"},
        }
        await wire.send(Request(1, "initialize", params))
        await wire.receive()
        with pytest.raises(LocalProtocolError, match="confirmed the handshake"):
            await server.send_request("roots/list")
        with trio.move_on_after(0.01):
            await server.send_request("ping")  # that much is allowed
        assert (await wire.expect(Request)).method == "ping"


async def test_a_client_is_told_of_nothing_that_its_handshake_did_not_declare() -> None:
    declared: dict[str, Any] = {"tools": {}}
    late = ServerIdentity({"name": "t", "version": "1"}, lambda revision: dict(declared))
    async with server_on_wire(identity=late) as (server, wire):
        declared["resources"] = {"listChanged": True}
        with pytest.raises(CapabilityError, match="server capability"):
            await server.send_notification("notifications/resources/list_changed")
        await trio.testing.wait_all_tasks_blocked()
        assert wire.arrived() == []
