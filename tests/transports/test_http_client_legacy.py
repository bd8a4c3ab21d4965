"""The legacy era over HTTP: sessions, the order of messages, cancellation.

L: 2025-11-25 `basic/transports`, Streamable HTTP.
"""

from __future__ import annotations

import contextlib
import logging
import os
from typing import Any

import httpx
import pytest
import trio
import trio.testing
from trio.testing import MockClock

from tests.http_peer import INITIALIZED, Asked, event, giving, never, peer, plain, result, streaming
from tests.transports.http_calls import TEXT, Calls, serving, works
from tests.transports.http_legacy import Faults, OldServer, legacy, ok, text
from tests.transports.support import DEADLINE
from trio_mcp import Answers, Client, HttpError, RemoteProtocolError, RequestTimeout, TransportError
from trio_mcp.http.client.legacy.sse_client import ENDPOINT_TIMEOUT
from trio_mcp.jsonrpc.messages import Notification, Request, SessionMessage
from trio_mcp.low_level import ClientSession, sse_client, streamable_http_client

pytestmark = pytest.mark.legacy


# --- sessions ---------------------------------------------------------------------------------------------------


async def test_every_message_names_the_session_and_the_revision() -> None:
    """L, Session Management, 2, and Protocol Version Header; initialize names neither."""
    async with legacy() as (server, client):
        await text(client)
        await client.notify("x/own")
        await server.until("x/own")
        await server.until("GET")
    opening, *others = server.asked
    assert "mcp-session-id" not in opening.headers
    assert {(asked.headers["mcp-session-id"], asked.headers["mcp-protocol-version"]) for asked in others} == {
        ("s1", "2025-11-25")
    }
    assert server.asked[-1].method == "DELETE"


@pytest.mark.parametrize(("cancelled", "longest"), [(False, 2.0), (True, 0.2)])
async def test_a_session_ends_with_a_delete_that_a_silent_server_cannot_hold_up(
    cancelled: bool, longest: float, autojump_clock: MockClock
) -> None:
    """L, Session Management, 5: what a client no longer needs lasts for half an hour, if it is not told."""
    async with serving({"DELETE": never}) as server:
        with trio.CancelScope() as scope:
            async with Client(server.url, mode="legacy"):
                await server.until("GET")
                began = trio.current_time()
                if cancelled:
                    scope.cancel()
        assert trio.current_time() - began <= longest
        await server.until("DELETE")


async def test_without_a_session_id_there_is_nothing_to_end() -> None:
    async with legacy({"initialize": giving(INITIALIZED)}) as (server, client):
        assert await text(client) == "ok"
    assert "DELETE" not in server.methods()
    assert all("mcp-session-id" not in asked.headers for asked in server.asked)


@pytest.mark.parametrize("first", ["GET", "notifications/initialized"])
async def test_requests_come_after_the_answers_to_the_notice_and_to_the_get_that_listens(first: str) -> None:
    """`basic/lifecycle`: each POST is a task of its own, and yet a slow answer to the notice lets nothing overtake.

    A question that a server asks while it serves the first request may come on that stream, or not at all.
    """
    release = trio.Event()

    async def slow(asked: Asked) -> None:
        await release.wait()
        await (asked.begin_events() if first == "GET" else asked.status(202))

    async with legacy({first: slow}) as (server, client), trio.open_nursery() as nursery:
        nursery.start_soon(text, client)
        await server.until(first)
        await trio.testing.wait_all_tasks_blocked()
        assert "tools/call" not in server.methods()
        release.set()


async def test_an_unanswered_get_delays_requests_only_briefly(autojump_clock: MockClock) -> None:
    """Some servers answer it with the first message, which may never come."""
    async with legacy({"GET": never}) as (_server, client):
        assert await text(client) == "ok"


@pytest.mark.parametrize("bad", ["a b", "x" * 5000, "é"])
async def test_an_invalid_session_id_is_refused(bad: str) -> None:
    with pytest.raises(RemoteProtocolError, match="session id"):
        async with legacy({"initialize": giving(INITIALIZED, Mcp_Session_Id=bad)}):
            raise AssertionError("it connected")


async def test_notifications_keep_their_order() -> None:
    async with legacy() as (server, client):
        for number in range(20):
            await client.notify("x/note", {"number": number})
        await server.until("x/note", 20)
    assert [asked.body["params"]["number"] for asked in server.asked if asked.rpc == "x/note"] == list(range(20))


async def test_a_refused_notification_is_reported_and_costs_nothing_else() -> None:
    faults = Faults()
    async with legacy({"x/note": plain(500)}, options=faults.options) as (_, client):
        await client.notify("x/note")
        await faults.told.wait()
        assert await text(client) == "ok"
    assert "'x/note' was not accepted by the server: POST http" in faults.said[0]


# --- cancellation -----------------------------------------------------------------------------------------------


async def test_a_cancelled_call_sends_the_notice_and_a_slow_answer_to_it_delays_nothing() -> None:
    """L, Sending Messages, 6: disconnection SHOULD NOT be interpreted as cancellation, so the notice is sent."""
    release, closed = trio.Event(), trio.Event()

    async def never(asked: Asked) -> None:
        if asked.body["params"]["name"] == "never":
            await asked.gone()
            closed.set()
        else:
            await ok(asked)

    async def slow(asked: Asked) -> None:
        await release.wait()
        await asked.status(202)

    async with legacy({"tools/call": never, "notifications/cancelled": slow}) as (server, client):
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(client.call_tool, "never")
                call = await server.until("tools/call")
                scope.cancel("enough")
        notice = await server.until("notifications/cancelled")
        assert notice.body["params"] == {"requestId": call.id, "reason": "enough"}
        for _ in range(3):
            assert await text(client) == "ok"
        assert not closed.is_set()
        release.set()
        await closed.wait()  # the abandoned stream is closed when the server has been told
        with pytest.raises(RequestTimeout):
            await client.call_tool("never", timeout=0.2)
        await server.until("notifications/cancelled", 2)


async def test_a_response_that_cannot_be_encoded_is_replaced(caplog: pytest.LogCaptureFixture) -> None:
    get = streaming(event({"jsonrpc": "2.0", "id": "q", "method": "x/ask"}), then="gone")
    async with (
        serving({"GET": get}) as server,
        streamable_http_client(server.url) as (read, write),
        ClientSession(read, write) as session,
    ):

        async def answer(context: Any) -> dict[str, Any]:
            return {"not": float("nan")}

        session.add_request_handler("x/ask", answer)
        with caplog.at_level(logging.CRITICAL, "trio_mcp"):
            await session.initialize()
            replaced = await server.until("answer")
    assert replaced.body["error"]["code"] == -32603


# --- what has no answer, on a connection that breaks ------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "times"),
    [
        ("notifications/initialized", 2),  # else the server may ask this client nothing, while the session lasts
        ("notifications/cancelled", 2),  # else the handler works on in vain
        ("answer", 2),  # else the handler that has asked waits forever, and our own call for its timeout
        ("DELETE", 2),  # else the session lasts for its timeout
        ("x/note", 1),  # only its author knows whether it may be delivered twice
    ],
)
async def test_messages_that_may_arrive_twice_are_sent_again(name: str, times: int) -> None:
    came: list[Asked] = []
    faults = Faults()

    async def torn_once(asked: Asked) -> None:
        came.append(asked)
        if len(came) == 1:
            await asked.abort()
        else:
            await asked.status(202)
            faults.told.set()

    asks = streaming(event({"jsonrpc": "2.0", "id": "q", "method": "roots/list"}), then="gone")

    handlers = {"tools/call": asks, name: torn_once}
    async with legacy(handlers, answers=Answers(roots=[]), options=faults.options) as (server, client):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.call_tool, "t")
            await server.until("tools/call")
            await client.notify("x/note")
            if name not in ("notifications/cancelled", "DELETE"):
                await faults.told.wait()
            nursery.cancel_scope.cancel()
        if name != "DELETE":
            await faults.told.wait()
    assert len(came) == times
    assert ["was not accepted by the server" in fault for fault in faults.said] == [True] * (2 - times)


async def test_an_endpoint_that_arrives_at_its_deadline_is_too_late(mock_clock: MockClock) -> None:
    """It is either used or late: a link that has been opened is not closed for having taken too long."""

    async def late(asked: Asked) -> None:
        await asked.begin_events()
        await trio.testing.wait_all_tasks_blocked()
        data = b"event: endpoint\ndata: /messages\n\n"
        os.write(asked.stream.socket.fileno(), b"%x\r\n%s\r\n" % (len(data), data))
        mock_clock.jump(ENDPOINT_TIMEOUT + 1)
        await asked.gone()

    async with peer({"GET": late}) as server:
        with pytest.raises(TransportError, match="sent no endpoint event within"):
            async with sse_client(server.url):
                pass


@pytest.mark.parametrize("accepts", [True, False])
async def test_over_http_sse_a_cancellation_does_not_overtake_its_request(
    accepts: bool, autojump_clock: MockClock
) -> None:
    """The server ignores a cancellation of a request that it does not know yet: the request would run on for no one."""
    accept = trio.Event()
    stream = streaming(b"event: endpoint\ndata: /messages\n\n", then="gone")

    async def slow(asked: Asked) -> None:
        await accept.wait()
        await asked.status(202)

    async with peer({"GET": stream, "tools/call": slow}) as server, sse_client(server.url) as (_, write):
        await write.send(SessionMessage(Request(1, "tools/call", {"name": "t"})))
        await server.until("tools/call")
        await write.send(SessionMessage(Notification("notifications/cancelled", {"requestId": 1})))
        await write.send(SessionMessage(Notification("x/own")))
        await server.until("x/own")
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert "notifications/cancelled" not in server.methods()
        if accepts:
            accept.set()
        await server.until("notifications/cancelled")
        assert trio.current_time() < 1 or not accepts


async def test_over_http_sse_a_message_refused_with_404_finds_the_session_lost() -> None:
    """Whatever the body says: it fails as over Streamable HTTP, and is not repeated, as there is nothing to renew."""
    old, unknown = OldServer(), {"jsonrpc": "2.0", "id": None, "error": {"code": -32600, "message": "unknown"}}

    async def forgotten(asked: Asked) -> None:
        await asked.status(404, unknown)

    async with (
        serving({**old.handlers(), "prompts/list": forgotten}) as server,
        Client(lambda: sse_client(server.url), mode="legacy") as client,
    ):
        with pytest.raises(HttpError, match="make a new Client") as caught:
            await client.list_prompts()
        assert (caught.value.trouble, caught.value.sent) == ("session_lost", False)
        assert await text(client) == "ok"
    assert server.methods().count("prompts/list") == 1


async def test_a_cancellation_does_not_overtake_a_request_that_is_not_yet_written(autojump_clock: MockClock) -> None:
    """It stays here instead: its connection is given up before the server is told."""
    async with contextlib.AsyncExitStack() as stack:

        async def never_before_the_call(asked: Asked) -> None:
            with trio.move_on_after(1):
                await server.until("tools/call")
            await asked.status(202)

        async def wait_for_the_cancellation(request: httpx.Request) -> None:
            if b"tools/call" in request.content:
                await server.until("notifications/cancelled")

        server = await stack.enter_async_context(peer({"notifications/cancelled": never_before_the_call}))
        hooks = {"request": [wait_for_the_cancellation]}
        http = await stack.enter_async_context(httpx.AsyncClient(event_hooks=hooks, trust_env=False))
        _, write = await stack.enter_async_context(streamable_http_client(server.url, http_client=http))
        await write.send(SessionMessage(Request(1, "tools/call", {"name": "t"})))
        await trio.testing.wait_all_tasks_blocked()
        await write.send(SessionMessage(Notification("notifications/cancelled", {"requestId": 1})))
        await server.until("notifications/cancelled")
        await trio.sleep(2)
        assert "tools/call" not in server.methods()


@pytest.mark.parametrize("id", ["é", "a\x01", " ", "x" * 5000], ids=["8 bit", "control", "space", "long"])
async def test_an_event_id_that_cannot_be_sent_back_fails_its_call(id: str) -> None:
    """It is not mistaken for our own fault, with a traceback in the log."""
    breaks_off = streaming(lambda asked: f"id: {id}\nretry: 0\ndata:\n\n".encode())
    async with serving({"tools/call": Calls(t=breaks_off)}) as server, Client(server.url) as client:
        with pytest.raises(TransportError, match=r"can't be resumed: the event id '.*' can't be sent back"):
            await client.call_tool("t")
        await works(client)
    assert server.methods().count("GET") == 1


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

    async with serving({"GET": listening, "tools/call": Calls()}) as server, Client(server.url) as client:
        await server.until("GET", 4)
        await works(client)
        await trio.sleep(10)
        assert server.methods().count("initialize") == 2


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


@pytest.mark.parametrize(
    ("name", "fields", "times"),
    [
        ("answer", {"Retry_After": "0"}, 3),  # a function of the server waits for it
        ("answer", {}, 1),  # the server does not say that it might take the response later
        ("x/note", {"Retry_After": "0"}, 1),  # only its author knows whether it is still of interest
    ],
)
async def test_a_response_is_sent_again_if_the_server_asks_for_that(
    name: str, fields: dict[str, str], times: int
) -> None:
    """RFC 9110, section 15.6.4: a server that can't take it now says when it may."""
    came: list[Asked] = []
    faults = Faults()

    async def busy_twice(asked: Asked) -> None:
        came.append(asked)
        await (asked.status(503, **fields) if len(came) < 3 else asked.status(202))
        if len(came) == times:
            faults.told.set()

    asks = streaming(event({"jsonrpc": "2.0", "id": "q", "method": "roots/list"}), then="gone")
    handlers = {"tools/call": asks, name: busy_twice}
    async with (
        legacy(handlers, answers=Answers(roots=[]), options=faults.options) as (server, client),
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(client.call_tool, "t")
        await server.until("tools/call")
        await client.notify("x/note")
        await faults.told.wait()
        nursery.cancel_scope.cancel()
    assert len(came) == times
    assert any("was not accepted by the server" in fault for fault in faults.said) == (times == 1)
