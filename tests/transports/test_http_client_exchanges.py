"""One exchange per request: what fails it fails one call, and cancelling a call leaves nothing behind.

S: 2026-07-28 `basic/transports/streamable-http`.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from trio.testing import MockClock

from tests.effort import examples
from tests.http_peer import Asked, event, giving, never, peer, plain, progress, result, streaming
from tests.transports.http_calls import (
    TEXT,
    Calls,
    cut_events,
    cut_json,
    discovered,
    endless_stream,
    modern,
    ok,
    serving,
    streamed,
    works,
)
from trio_mcp import (
    Client,
    HttpError,
    McpError,
    MessageTooLarge,
    RemoteProtocolError,
    RequestTimeout,
    TransportError,
)
from trio_mcp.http.client import streamable as http_link
from trio_mcp.low_level import streamable_http_client

pytestmark = pytest.mark.usefixtures("every_sender")


@pytest.mark.parametrize("answer", [ok, streamed])
async def test_an_answer_as_json_and_as_events_leaves_its_connection_to_the_next(answer: Any) -> None:
    """Sending Messages, 6: the client MUST support both. An event stream is read to its terminating chunk."""
    async with modern(t=answer) as (server, client):
        for _ in range(10):
            assert (await client.call_tool("t")).content[0].text == "ok"  # type: ignore[union-attr]
        assert server.asked[-1].headers["accept"] == "application/json, text/event-stream"
        assert server.connections == 1


@pytest.mark.parametrize(
    ("status", "trouble", "says"),
    [
        (401, "unauthorized", "wants credentials"),
        (500, "refused", "500 Internal Server Error: the body"),
        (302, "refused", "a redirection to 'http://elsewhere/'"),
    ],
)
async def test_each_refusal_fails_its_call_and_can_be_told_from_the_others(
    status: int, trouble: str, says: str
) -> None:
    async def refused(asked: Asked) -> None:
        await asked.status(status, b"the body", Retry_After="3", X_Own="mine", Location="http://elsewhere/")

    async with modern(t=refused) as (_, client), trio.open_nursery() as nursery:
        nursery.start_soon(works, client)
        with pytest.raises(HttpError) as caught:
            await client.call_tool("t")
        await works(client)
    error = caught.value
    assert (error.status, error.trouble, error.retry_after, error.excerpt) == (status, trouble, 3.0, "the body")
    assert error.headers["x-own"] == "mine"
    assert says in str(error)


async def test_a_refusal_by_a_proxy_keeps_its_status_despite_an_error_in_the_body() -> None:
    """A proxy's 429 or 401 may hold JSON-RPC; Retry-After and the challenge would be lost in it."""

    async def refused(asked: Asked) -> None:
        body = {"jsonrpc": "2.0", "id": asked.id, "error": {"code": -1, "message": "slowly"}}
        await asked.status(429, body, Retry_After="9")

    async def unknown(asked: Asked) -> None:
        await asked.error(400, -32602, "no such tool")

    async with modern(busy=refused, unknown=unknown) as (_, client):
        with pytest.raises(HttpError, match="slowly") as caught:
            await client.call_tool("busy")
        assert caught.value.retry_after == 9
        with pytest.raises(McpError, match="no such tool"):
            await client.call_tool("unknown")


async def silent_close(asked: Asked) -> None:
    await asked.abort()


def saying(make: Callable[[int], Any]) -> Any:
    """Answer with what is made of the request's id."""

    async def answer(asked: Asked) -> None:
        await asked.status(200, make(asked.id))

    return answer


a_request = saying(lambda id: {"jsonrpc": "2.0", "id": id, "method": "ping"})
of_another = saying(lambda id: result(id + 1000, TEXT))
batch = saying(lambda id: [result(id, TEXT)])
not_unicode = saying(lambda id: json.dumps(result(id, {"x": "?"})).encode().replace(b"?", b"\xff"))


def raw(data: bytes, *, cut: bool = False) -> Any:
    async def answer(asked: Asked) -> None:
        await asked.raw(data)
        if cut:
            await asked.abort()

    return answer


BATCH = "batches are part of revision 2025-03-26 only"
BROKEN: dict[str, tuple[Any, type[Exception], str]] = {
    "cut in its head": (
        raw(b"HTTP/1.1 200 OK\r\nContent-", cut=True),
        TransportError,
        r"POST http://.*/mcp failed: RemoteProtocolError",
    ),
    "cut in its JSON": (cut_json, TransportError, "failed: "),
    "cut in an event": (cut_events, TransportError, "failed: "),
    "a stream without it": (streaming(b": bye\n\n"), TransportError, "ended without a response to 'tools/call'"),
    "closed": (silent_close, TransportError, "failed: "),
    "another protocol": (raw(b"220 mail.example ESMTP\r\n", cut=True), TransportError, "failed: RemoteProtocolError"),
    "not JSON": (plain(200, b"[}"), RemoteProtocolError, "not a response to 'tools/call': invalid JSON"),
    "not Unicode": (not_unicode, RemoteProtocolError, r"^POST http://.*/mcp.*: invalid JSON"),
    "HTML": (plain(200, b"<html>", content_type="text/html"), HttpError, "neither JSON nor events"),
    "no type": (raw(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"), HttpError, "without a Content-Type"),
    "202": (plain(202), HttpError, "without a response to the request"),
    "304": (raw(b"HTTP/1.1 304 Not Modified\r\n\r\n"), HttpError, "304 Not Modified$"),
    "307": (plain(307, Location="/" + "x" * 9000), HttpError, "a redirection to '/xxx.*…', which is not followed"),
    "a request": (a_request, RemoteProtocolError, "not a response to 'tools/call': Request"),
    "of another": (of_another, RemoteProtocolError, "not a response to 'tools/call': Response"),
    "packed": (
        plain(200, b"\x1f\x8b", Content_Encoding="gzip"),
        TransportError,
        "encoded as 'gzip', although only",
    ),
    "malformed in a stream": (
        streaming(lambda asked: event({"jsonrpc": "2.0", "id": asked.id, "result": 7})),
        RemoteProtocolError,
        r"^POST http://.*/mcp: .result. must be an object",
    ),
    "a batch": (batch, RemoteProtocolError, BATCH),
    "a batch in a stream": (streaming(lambda asked: event([result(asked.id, TEXT)])), RemoteProtocolError, BATCH),
}


@pytest.mark.parametrize(("answer", "kind", "says"), BROKEN.values(), ids=BROKEN)
async def test_an_invalid_response_fails_only_its_call(answer: Any, kind: type[Exception], says: str) -> None:
    async with modern(t=answer, slow=endless_stream) as (server, client), trio.open_nursery() as nursery:
        nursery.start_soon(client.call_tool, "slow")
        await server.until("tools/call")
        with pytest.raises(kind, match=says) as caught:
            await client.call_tool("t")
        assert len(str(caught.value)) < 1000
        await works(client)
        assert client.session.close_cause is None
        nursery.cancel_scope.cancel()


async def test_a_safe_request_is_sent_again_when_its_connection_breaks() -> None:
    """Reading a list changes nothing; a tool may have done its work."""
    broken = []

    async def lists(asked: Asked) -> None:
        broken.append(asked)
        await (asked.abort() if len(broken) == 1 else asked.result({"resultType": "complete", "tools": []}))

    async with modern(t=silent_close) as (server, client):
        server.handlers["tools/list"] = lists
        assert (await client.list_tools()).tools == []
        assert len(broken) == 2
        with pytest.raises(TransportError):
            await client.call_tool("t")
        assert server.methods().count("tools/call") == 1


async def test_the_size_of_an_answer_is_limited_and_the_error_names_the_limit() -> None:
    much = giving({**TEXT, "more": "x" * 2000})
    much_in_a_stream = streaming(lambda asked: event(result(asked.id, {**TEXT, "more": "x" * 2000})))
    tools = {"server/discover": discovered, "tools/call": Calls(much=much, stream=much_in_a_stream)}
    async with (
        serving(tools) as server,
        Client(lambda: streamable_http_client(server.url, max_message_size=1000)) as client,
    ):
        for tool in ("much", "stream"):
            with pytest.raises(MessageTooLarge, match="max_message_size=1000"):
                await client.call_tool(tool)
        await works(client)


@settings(max_examples=examples(40))
@given(place=st.integers(0, 400), stream=st.booleans())
async def test_a_disconnection_anywhere_fails_one_call_or_none(place: int, stream: bool) -> None:
    async def broken(asked: Asked) -> None:
        sent = 0
        real = asked.stream.send_all

        async def send_all(data: bytes) -> None:
            nonlocal sent
            await real(data[: max(0, place - sent)])
            sent += len(data)

        asked.stream.send_all = send_all  # type: ignore[method-assign]
        await (streamed if stream else ok)(asked)
        await asked.abort()

    async with modern(t=broken) as (_, client):
        with contextlib.suppress(TransportError):
            assert (await client.call_tool("t")).content[0].text == "ok"  # type: ignore[union-attr]
        await works(client)


# --- cancellation ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("answer", [never, endless_stream])
async def test_cancelling_a_call_closes_its_stream_and_sends_no_notice(answer: Any) -> None:
    """S, Cancellation: before and after the answer has begun."""
    async with modern(t=answer) as (server, client):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.call_tool, "t")
            await server.until("tools/call")
            before = server.live
            nursery.cancel_scope.cancel()
        await server.until_live(before - 1)
        with pytest.raises(RequestTimeout):
            await client.call_tool("t", timeout=0.01)
        await works(client)
        assert "notifications/cancelled" not in server.methods()


async def test_calls_beyond_the_connections_wait_and_can_be_cancelled_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cancellation is never behind the calls that wait."""
    monkeypatch.setattr(http_link, "MAX_CONNECTIONS", 2)
    async with modern(t=never) as (server, client), trio.open_nursery() as nursery:
        scopes = [trio.CancelScope() for _ in range(300)]

        async def call(number: int) -> None:
            with scopes[number]:
                await client.call_tool("t", {"number": number})

        for number in range(len(scopes)):
            nursery.start_soon(call, number)
        await server.until("tools/call", 2)
        await trio.testing.wait_all_tasks_blocked()
        calls = [asked.body["params"] for asked in server.asked if asked.rpc == "tools/call"]
        under_way = {params["arguments"]["number"] for params in calls}
        assert len(under_way) == 2
        for number in set(range(len(scopes))) - under_way:
            scopes[number].cancel()
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(works, client)
        await trio.testing.wait_all_tasks_blocked()
        for number in under_way:
            scopes[number].cancel()
    assert server.methods().count("tools/call") == 3


async def test_urgent_calls_have_places_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_link, "MAX_CONNECTIONS", 1)
    monkeypatch.setattr(http_link, "MAX_URGENT", 1)
    async with modern(t=never) as (server, client), trio.open_nursery() as nursery:
        await works(client)
        for _ in range(2):
            nursery.start_soon(client.call_tool, "t")
        await server.until("tools/call", 2)
        await client.call_tool("fine", urgent=True)
        for _ in range(2):
            nursery.start_soon(partial(client.call_tool, "t", urgent=True))
        await server.until("tools/call", 4)
        await trio.testing.wait_all_tasks_blocked()
        assert server.methods().count("tools/call") == 4
        nursery.cancel_scope.cancel()


async def test_requests_are_bounded_in_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_link, "MAX_EXCHANGES", 3)
    async with modern(t=never) as (server, client), trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(client.call_tool, "t")
        await server.until("tools/call", 3)
        with pytest.raises(TransportError, match="'tools/call' was not sent: 3 requests"):
            await client.call_tool("t")
        nursery.cancel_scope.cancel()


async def test_a_stream_that_goes_on_after_its_answer_is_closed(autojump_clock: MockClock) -> None:
    """It holds a place; that more and more comes does not keep it."""
    closed = trio.Event()

    async def talkative(asked: Asked) -> None:
        await asked.begin_events()
        await asked.chunk(event(result(asked.id, TEXT)))
        try:
            while True:
                await asked.chunk(event({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}))
                await trio.sleep(0.5)
        finally:
            closed.set()

    async with peer({"server/discover": discovered, "tools/call": talkative}) as server, Client(server.url) as client:
        await client.call_tool("t")
        await closed.wait()


async def test_an_unread_stream_does_not_stall_the_session() -> None:
    """Thousands of progress notifications for a slow callback: other calls go on."""

    async def flood(asked: Asked) -> None:
        token = asked.body["params"]["_meta"]["progressToken"]
        notes = [event(progress(token, number)) for number in range(3000)]
        await asked.events(*notes, event(result(asked.id, TEXT)))

    blocked = trio.Event()

    async def on_progress(progress: object) -> None:
        await blocked.wait()

    async def call(client: Client) -> None:
        await client.call_tool("flood", on_progress=on_progress)

    async with modern(flood=flood) as (server, client), trio.open_nursery() as nursery:
        nursery.start_soon(call, client)
        await server.until("tools/call")
        for _ in range(20):
            await works(client)
        blocked.set()
