"""One exchange per request: what fails it fails one call, and cancelling it closes its connection.

S: 2026-07-28 `basic/transports/streamable-http`.
"""

from __future__ import annotations

import contextlib
import gc
import itertools
import logging
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import httpx2
import pytest
import trio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from trio.testing import MockClock

from tests.injection import cancel_everywhere
from tests.transports.http_peer import DISCOVERED, Asked, Peer, event, peer, result
from tests.transports.support import DEADLINE
from trio_mcp import (
    Client,
    ClientSession,
    HttpError,
    McpError,
    MessageTooLarge,
    RemoteProtocolError,
    RequestTimeout,
    TransportError,
    streamable_http_client,
)
from trio_mcp.transports import http_link

MODERN = "2026-07-28"
TEXT = {"resultType": "complete", "content": [{"type": "text", "text": "ok"}]}


@pytest.fixture
def autojump_clock() -> MockClock:
    """Time that passes when nothing happens, with a moment for what is on its way through the kernel."""
    return MockClock(autojump_threshold=0.05)


async def discovered(asked: Asked) -> None:
    await asked.result(DISCOVERED)


class Calls:
    """What a tool's call is answered with, by the tool's name."""

    def __init__(self, **tools: Any) -> None:
        self.tools = tools

    async def __call__(self, asked: Asked) -> None:
        await self.tools.get(asked.body["params"]["name"], ok)(asked)


async def ok(asked: Asked) -> None:
    await asked.result(TEXT)


async def streamed(asked: Asked) -> None:
    await asked.begin_events()
    await asked.chunk(b": hello\n\n" + event(result(asked.id, TEXT)))
    await asked.end_events()


async def never(asked: Asked) -> None:
    await asked.gone()


async def endless_stream(asked: Asked) -> None:
    await asked.begin_events()
    await asked.chunk(b": still here\n\n")
    await asked.gone()


@contextlib.asynccontextmanager
async def modern(**tools: Any) -> AsyncIterator[tuple[Peer, Client]]:
    """A client of a modern server with these tools; any other answers "ok"."""
    with trio.fail_after(DEADLINE):
        async with (
            peer({"server/discover": discovered, "tools/call": Calls(**tools)}) as server,
            Client(server.url) as client,
        ):
            yield server, client


async def works(client: Client) -> None:
    assert (await client.call_tool("fine")).content[0].text == "ok"  # type: ignore[union-attr]


@pytest.mark.parametrize("answer", [ok, streamed])
async def test_an_answer_as_json_and_as_events(answer: Any) -> None:
    """Sending Messages, 6: the client MUST support both."""
    async with modern(t=answer) as (server, client):
        assert (await client.call_tool("t")).content[0].text == "ok"  # type: ignore[union-attr]
        assert server.asked[-1].headers["accept"] == "application/json, text/event-stream"


@pytest.mark.parametrize("answer", [ok, streamed])
async def test_a_connection_is_used_again_after_an_answer(answer: Any) -> None:
    """An event stream is read to its terminating chunk."""
    async with modern(t=answer) as (server, client):
        for _ in range(10):
            await client.call_tool("t")
        assert server.connections == 1


@pytest.mark.parametrize(
    ("status", "trouble", "says"),
    [
        (401, "unauthorized", "wants credentials"),
        (403, "forbidden", "403"),
        (413, "too_large", "413"),
        (429, "busy", "429 Too Many Requests"),
        (500, "refused", "500 Internal Server Error: the body"),
        (502, "gateway", "502"),
        (503, "busy", "503"),
        (302, "refused", "a redirection to 'http://elsewhere/'"),
        (599, "refused", "unknown status"),
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


async def test_a_refusal_for_the_way_keeps_its_status_though_there_is_an_error_in_the_body() -> None:
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


async def cut_head(asked: Asked) -> None:
    await asked.raw(b"HTTP/1.1 200 OK\r\nContent-")
    await asked.abort()


async def cut_json(asked: Asked) -> None:
    await asked.raw(b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{"jsonrpc":')
    await asked.abort()


async def cut_events(asked: Asked) -> None:
    await asked.begin_events()
    await asked.chunk(event(result(asked.id, TEXT))[:-1])
    await asked.abort()


async def no_answer(asked: Asked) -> None:
    await asked.begin_events()
    await asked.chunk(b": bye\n\n")
    await asked.end_events()


async def silent_close(asked: Asked) -> None:
    await asked.abort()


async def no_http(asked: Asked) -> None:
    await asked.raw(b"220 mail.example ESMTP\r\n")
    await asked.abort()


async def not_json(asked: Asked) -> None:
    await asked.status(200, b"[}")


async def html(asked: Asked) -> None:
    await asked.status(200, b"<html>", content_type="text/html")


async def accepted(asked: Asked) -> None:
    await asked.status(202)


async def a_request(asked: Asked) -> None:
    await asked.status(200, {"jsonrpc": "2.0", "id": asked.id, "method": "ping"})


async def of_another(asked: Asked) -> None:
    await asked.status(200, result(asked.id + 1000, TEXT))


async def packed(asked: Asked) -> None:
    await asked.status(200, b"\x1f\x8b", Content_Encoding="gzip")


async def malformed_in_stream(asked: Asked) -> None:
    await asked.begin_events()
    await asked.chunk(event({"jsonrpc": "2.0", "id": asked.id, "result": 7}))
    await asked.end_events()


BROKEN: list[tuple[Any, type[Exception], str]] = [
    (cut_head, TransportError, r"POST http://.*/mcp failed: RemoteProtocolError"),
    (cut_json, TransportError, "failed: "),
    (cut_events, TransportError, "failed: "),
    (no_answer, TransportError, "ended without an answer to 'tools/call'"),
    (silent_close, TransportError, "failed: "),
    (no_http, TransportError, "failed: RemoteProtocolError"),
    (not_json, RemoteProtocolError, "no answer to 'tools/call': invalid JSON"),
    (html, HttpError, "neither JSON nor events"),
    (accepted, HttpError, "without an answer to the request"),
    (a_request, RemoteProtocolError, "no answer to 'tools/call': Request"),
    (of_another, RemoteProtocolError, "no answer to 'tools/call': Response"),
    (packed, TransportError, "packed as 'gzip', unasked"),
    (malformed_in_stream, RemoteProtocolError, '"result" must be an object'),
]


@pytest.mark.parametrize(("answer", "kind", "says"), BROKEN, ids=[case[0].__name__ for case in BROKEN])
async def test_an_answer_that_is_none_fails_its_call_alone(answer: Any, kind: type[Exception], says: str) -> None:
    async with modern(t=answer, slow=endless_stream) as (server, client), trio.open_nursery() as nursery:
        nursery.start_soon(client.call_tool, "slow")
        await server.until("tools/call")
        with pytest.raises(kind, match=says):
            await client.call_tool("t")
        await works(client)
        assert client.session.close_cause is None
        nursery.cancel_scope.cancel()


async def test_what_is_safe_is_sent_again_when_its_connection_breaks() -> None:
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
    async def much(asked: Asked) -> None:
        await asked.result({**TEXT, "more": "x" * 2000})

    async def much_in_a_stream(asked: Asked) -> None:
        await asked.begin_events()
        await asked.chunk(event(result(asked.id, {**TEXT, "more": "x" * 2000})))
        await asked.end_events()

    tools = {"server/discover": discovered, "tools/call": Calls(much=much, stream=much_in_a_stream)}
    with trio.fail_after(DEADLINE):
        async with (
            peer(tools) as server,
            Client(lambda: streamable_http_client(server.url, max_message_size=1000)) as client,
        ):
            for tool in ("much", "stream"):
                with pytest.raises(MessageTooLarge, match="max_message_size=1000"):
                    await client.call_tool(tool)
            await works(client)


# --- redirections -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [307, 308])
async def test_a_redirection_within_the_origin_is_followed(status: int) -> None:
    async def moved(asked: Asked) -> None:
        await (ok(asked) if asked.path == "/new" else asked.status(status, Location="/new"))

    async with modern(t=moved) as (server, client):
        assert (await client.call_tool("t")).content[0].text == "ok"  # type: ignore[union-attr]
        assert server.asked[-1].body["params"]["name"] == "t"


@pytest.mark.parametrize("follow", [True, False])
async def test_no_credentials_leave_the_origin(follow: bool) -> None:
    """Not even where the caller's own client follows redirections."""
    async with peer() as elsewhere:

        async def moved(asked: Asked) -> None:
            await asked.status(307, Location=elsewhere.url)

        tools = {"server/discover": discovered, "tools/call": Calls(t=moved)}
        with trio.fail_after(DEADLINE):
            async with (
                peer(tools) as server,
                httpx.AsyncClient(headers={"Authorization": "secret"}, follow_redirects=follow) as http_client,
                Client(lambda: streamable_http_client(server.url, http_client=http_client)) as client,
            ):
                with pytest.raises(HttpError, match="redirection"):
                    await client.call_tool("t")
                assert server.asked[-1].headers["authorization"] == "secret"
        assert elsewhere.asked == []


async def test_redirections_that_go_in_circles_end() -> None:
    async def round_and_round(asked: Asked) -> None:
        await asked.status(307, Location="/b" if asked.path == "/a" else "/a")

    async with modern(t=round_and_round) as (server, client):
        with pytest.raises(HttpError, match="307"):
            await client.call_tool("t")
        assert len(server.asked) < 10


# --- the HTTP client of the caller ------------------------------------------------------------------------------


@pytest.mark.parametrize("package", [httpx, httpx2])
async def test_a_client_of_the_callers_own_is_used_and_left_open(package: Any) -> None:
    tools = {"server/discover": discovered, "tools/call": Calls(t=streamed, cut=cut_json)}
    with trio.fail_after(DEADLINE):
        async with peer(tools) as server, package.AsyncClient(headers={"X-Own": "1"}) as http_client:
            async with Client(
                lambda: streamable_http_client(server.url, headers={"X-Mine": "2"}, http_client=http_client)
            ) as client:
                await client.call_tool("t")
                with pytest.raises(TransportError):
                    await client.call_tool("cut")
            assert not http_client.is_closed
            assert (await http_client.get(server.url)).status_code == 405
        assert {asked.headers["x-own"] for asked in server.asked} == {"1"}
        assert {asked.headers.get("x-mine") for asked in server.asked if asked.body} == {"2"}


async def test_what_a_hook_of_the_callers_client_raises_fails_the_call(caplog: pytest.LogCaptureFixture) -> None:
    """Authentication is such a hook: its failure is no end of the link."""

    async def hook(request: httpx.Request) -> None:
        if b'"bad"' in request.content:
            raise LookupError("no token")

    with trio.fail_after(DEADLINE):
        async with (
            peer({"server/discover": discovered, "tools/call": Calls()}) as server,
            httpx.AsyncClient(event_hooks={"request": [hook]}) as http_client,
            Client(lambda: streamable_http_client(server.url, http_client=http_client)) as client,
        ):
            with caplog.at_level(logging.CRITICAL, "trio_mcp"), pytest.raises(TransportError, match="no token"):
                await client.call_tool("bad")
            await works(client)


@pytest.mark.parametrize(
    ("arguments", "error", "says"),
    [
        ({"url": "ftp://x"}, ValueError, "http"),
        ({"url": "http://x", "headers": {"a": "b\r\nc: d"}}, ValueError, "line breaks"),
        ({"url": "http://x", "http_client": object()}, TypeError, "AsyncClient of httpx or httpx2, got object"),
        ({"url": "http://x", "max_message_size": 0}, ValueError, "max_message_size"),
    ],
)
async def test_arguments_that_make_no_sense(arguments: dict[str, Any], error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        async with streamable_http_client(**arguments):
            raise AssertionError("it opened")


async def test_tls_to_a_port_without_it_says_so() -> None:
    """What httpx raises for it has no text of its own."""

    async def plain(stream: trio.SocketStream) -> None:
        await stream.receive_some()
        await stream.send_all(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await stream.aclose()

    async with trio.open_nursery() as nursery:
        (listener,) = await nursery.start(partial(trio.serve_tcp, plain, 0, host="127.0.0.1"))
        with pytest.raises(TransportError, match=r"ConnectError: .*SSL"):
            async with Client(f"https://127.0.0.1:{listener.socket.getsockname()[1]}/"):
                raise AssertionError("it opened")
        nursery.cancel_scope.cancel()


# --- cancellation -----------------------------------------------------------------------------------------------


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


async def test_requests_are_bounded_in_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_link, "MAX_EXCHANGES", 3)
    async with modern(t=never) as (server, client), trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(client.call_tool, "t")
        await server.until("tools/call", 3)
        with pytest.raises(TransportError, match="'tools/call' was not sent: 3 requests"):
            await client.call_tool("t")
        nursery.cancel_scope.cancel()


async def test_a_cancellation_anywhere_leaves_no_task_and_no_connection() -> None:
    """httpx and its pool are consistent after a cancellation at every step: the next call gets through."""
    tools = {"server/discover": discovered, "tools/call": Calls(t=streamed)}
    async with peer(tools) as server, httpx.AsyncClient() as http_client:

        async def scenario() -> None:
            async with Client(lambda: streamable_http_client(server.url, http_client=http_client)) as client:
                await client.call_tool("t")
                await client.call_tool("json")

        async def check() -> None:
            pool = http_client._transport._pool  # type: ignore[attr-defined]
            assert all(connection.is_idle() for connection in pool.connections)
            assert pool._requests == []
            await server.until_live(len(pool.connections))

        with trio.fail_after(2 * DEADLINE):
            assert await cancel_everywhere(scenario, check) > 20
    gc.collect()  # a generator that was left behind would complain, and a warning is an error


async def test_a_thousand_exchanges_that_end_badly_leave_nothing_behind() -> None:
    """Refused, failed, closed: the tasks that live are those of the connections that live."""

    async def refused(asked: Asked) -> None:
        await asked.status(500)

    async with modern(refused=refused, cut=cut_events, closed=endless_stream) as (server, client):
        await works(client)

        async def one(number: int) -> None:
            with contextlib.suppress(TransportError), trio.move_on_after(0.01 if number % 3 == 2 else DEADLINE):
                await client.call_tool(("refused", "cut", "closed")[number % 3])

        async def batch(size: int) -> int:
            async with trio.open_nursery() as nursery:
                for number in range(size):
                    nursery.start_soon(one, number)
            await trio.testing.wait_all_tasks_blocked(0.01)
            await works(client)
            server.asked.clear()
            gc.collect()
            return len(gc.get_objects())

        for _ in range(4):
            before = await batch(60)
        tasks = trio.lowlevel.current_statistics().tasks_living - server.live
        for _ in range(16):
            after = await batch(60)
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert trio.lowlevel.current_statistics().tasks_living - server.live <= tasks
        assert after - before < 960  # objects: less than one for each of these exchanges


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


async def test_a_stream_that_nobody_reads_does_not_stall_the_session() -> None:
    """Thousands of progress notifications for a slow callback: other calls go on."""

    async def flood(asked: Asked) -> None:
        token = asked.body["params"]["_meta"]["progressToken"]
        await asked.begin_events()
        for number in range(3000):
            params = {"progressToken": token, "progress": number}
            await asked.chunk(event({"jsonrpc": "2.0", "method": "notifications/progress", "params": params}))
        await asked.chunk(event(result(asked.id, TEXT)))
        await asked.end_events()

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


# --- streams cut anywhere ---------------------------------------------------------------------------------------


async def cut_everywhere(pieces: list[bytes]) -> list[str]:
    """What a session hears of a stream that arrives in these pieces."""
    heard: list[str] = []

    async def stream(asked: Asked) -> None:
        await asked.begin_events()
        for piece in pieces:
            await asked.chunk(piece)
        await asked.end_events()

    with trio.fail_after(DEADLINE):
        async with (
            peer({"server/discover": discovered, "tools/call": stream}) as server,
            streamable_http_client(server.url) as link,
            ClientSession(*link) as session,
        ):
            await session.discover()

            async def note(notification: Any) -> None:
                heard.append(notification.params["data"])

            session.received_notification = note  # type: ignore[method-assign]
            answer = await session.send_request("tools/call", {"name": "t"})
            heard.append(answer["content"][0]["text"])
            while len(heard) < 2:
                await trio.lowlevel.checkpoint()
    return sorted(heard)


LOG = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "línea\u2028é"}}
WHOLE = (
    b"\xef\xbb\xbf: comment\r\nid: 1\rdata:\n\n"
    + event(LOG).replace(b"\n", b"\r\n")
    + b"event: other\ndata: ignored\n\n"
    + event(result(2, TEXT))
    .replace(b"data: ", b'data: {"jsonrpc": "2.0",\ndata: ')
    .replace(b'{"jsonrpc": "2.0", "id"', b'"id"')
)


def test_the_stream_of_these_tests_holds_what_it_should() -> None:
    assert b'data: {"jsonrpc": "2.0",\ndata: "id": 2' in WHOLE


async def test_a_stream_may_be_cut_at_every_byte() -> None:
    assert await cut_everywhere([WHOLE[i : i + 1] for i in range(len(WHOLE))]) == ["línea\u2028é", "ok"]
    for place in range(1, len(WHOLE), 7):
        assert await cut_everywhere([WHOLE[:place], WHOLE[place:]]) == ["línea\u2028é", "ok"]


@settings(max_examples=30, suppress_health_check=[HealthCheck.too_slow])
@given(cuts=st.lists(st.integers(1, len(WHOLE) - 1), max_size=8, unique=True))
async def test_a_stream_may_be_cut_in_any_way(cuts: list[int]) -> None:
    places = [0, *sorted(cuts), len(WHOLE)]
    pieces = [WHOLE[here:there] for here, there in itertools.pairwise(places)]
    assert await cut_everywhere(pieces) == ["línea\u2028é", "ok"]


@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow])
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


async def test_a_unix_socket_through_the_callers_own_client(tmp_path: Path) -> None:
    address = str(tmp_path / "s")
    with trio.socket.socket(trio.socket.AF_UNIX) as listener:
        await listener.bind(address)
        listener.listen()
        server = Peer({"server/discover": discovered, "tools/call": ok})
        with trio.fail_after(DEADLINE):
            async with trio.open_nursery() as nursery:

                async def accept() -> None:
                    while True:
                        nursery.start_soon(server.serve, trio.SocketStream((await listener.accept())[0]))

                nursery.start_soon(accept)
                async with (
                    httpx.AsyncClient(transport=httpx.AsyncHTTPTransport(uds=address)) as http_client,
                    Client(lambda: streamable_http_client("http://localhost/mcp", http_client=http_client)) as client,
                ):
                    await works(client)
                nursery.cancel_scope.cancel()
