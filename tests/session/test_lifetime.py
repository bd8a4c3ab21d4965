"""Sessions open in either era, and begin and end with their block, their close, or their link, which settles all."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.lowlevel

from tests.peer import Peer
from tests.session.harness import ScriptedServer, client_on_wire, server_on_wire, session_pair
from tests.waiting import steps_within
from trio_mcp import (
    CallOptions,
    CapabilityError,
    LocalProtocolError,
    McpError,
    NegotiationError,
    SessionClosed,
    SessionOptions,
    TransportError,
)
from trio_mcp.eras.server_negotiation import ServerIdentity
from trio_mcp.jsonrpc.messages import (
    ErrorData,
    ErrorResponse,
    Notification,
    Request,
    Response,
    SessionMessage,
    TransportFailure,
)
from trio_mcp.low_level import BaseSession, ClientSession, HandlerOptions, RequestContext, memory_link_pair
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


async def negotiate_with(*answers: Any, by: str = "negotiate", **calls: Any) -> tuple[ClientSession, list[Any]]:
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
                await getattr(client, by)()
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
    with pytest.raises(NegotiationError, match="serves no modern revision that this client speaks"):
        await negotiate_with({**MODERN, "supportedVersions": ["2099-01-01"]}, by="discover")


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


@pytest.mark.parametrize(
    ("mode", "side", "method", "error", "said"),
    [
        ("legacy", "client", "prompts/list", CapabilityError, "'prompts/list' needs the server capability 'prompts'"),
        ("legacy", "client", "subscriptions/listen", LocalProtocolError, "not a method of revision 2025-11-25"),
        ("legacy", "client", "sampling/createMessage", LocalProtocolError, "a client may send"),
        ("modern", "client", "ping", LocalProtocolError, "'ping' is not a method of revision 2026-07-28"),
        ("legacy", "server", "sampling/createMessage", CapabilityError, "needs the client capability 'sampling'"),
        ("legacy", "server", "notifications/resources/list_changed", CapabilityError, "needs the server capability"),
        ("legacy", "server", "tools/list", LocalProtocolError, "a server may send"),
        ("modern", "server", "roots/list", LocalProtocolError, "handshake"),
        ("modern", "server", "notifications/tools/list_changed", LocalProtocolError, "handshake"),
    ],
)
async def test_what_was_not_declared_and_what_the_era_lacks_is_not_sent(
    mode: str, side: str, method: str, error: type[Exception], said: str
) -> None:
    async with session_pair(mode=mode, capabilities={}) as (client, server):
        session = client if side == "client" else server
        send = session.send_notification if method.startswith("notifications/") else session.send_request
        with pytest.raises(error, match=said) as caught:
            await send(method)
        if isinstance(caught.value, CapabilityError):
            assert f"{caught.value.side} capability {caught.value.capability!r}" in str(caught.value)
        assert method not in server.seen


async def test_a_server_asks_nothing_before_the_handshake_is_confirmed() -> None:
    async with server_on_wire(open_it=False) as (server, wire):
        await wire.send(Request(1, "initialize", wire.hello()))
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


# --- the end -------------------------------------------------------------------------------------------------------


class Oops(Exception):
    pass


@pytest.mark.parametrize("error", [Oops("x"), ExceptionGroup("mine", [Oops("y")]), KeyboardInterrupt(), SystemExit(3)])
@pytest.mark.parametrize("cancelled", [False, True])
async def test_what_is_raised_in_the_block_leaves_it_as_the_very_object(error: BaseException, cancelled: bool) -> None:
    """It wins over a pending cancellation of nothing."""
    with trio.CancelScope() as scope, pytest.raises(type(error)) as caught:
        async with memory_link_pair() as (ours, theirs), ScriptedServer(theirs), ClientSession(*ours) as client:
            await client.initialize()
            if cancelled:
                scope.cancel()
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


@pytest.mark.parametrize(("how", "cause"), [("closed", SessionClosed), ("lost", TransportError)])
async def test_what_ends_a_session_settles_every_call_with_its_cause(how: str, cause: type[Exception]) -> None:
    """It may be closed from another task; each caller has an exception of its own."""
    errors: list[Exception] = []

    async def call(client: ClientSession) -> None:
        with pytest.raises(cause, match="the wire was cut" if how == "lost" else "closed") as caught:
            await client.send_request("tools/call", {"name": "x"})
        errors.append(caught.value)

    async with client_on_wire() as (client, wire):
        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(call, client)
            await trio.testing.wait_all_tasks_blocked()
            if how == "closed":
                nursery.start_soon(client.aclose)
            else:
                await wire.send(TransportFailure(TransportError("the wire was cut")))
        await call(client)
        assert len({id(error) for error in errors}) == 4
        if how == "closed":
            with pytest.raises(SessionClosed):
                await client.send_notification("acme/x")
            await client.aclose()
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


async def test_a_session_is_entered_once_and_may_be_closed_before() -> None:
    async with memory_link_pair() as (ours, _):
        with trio.fail_after(1):
            await BaseSession(*ours).aclose()
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
