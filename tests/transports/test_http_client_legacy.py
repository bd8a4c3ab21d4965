"""The handshake era over HTTP: sessions, the server's own stream, streams that are gone on with, cancellation.

L: 2025-11-25 `basic/transports`, Streamable HTTP.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
import trio
from trio.testing import MockClock

from tests.transports.http_peer import INITIALIZED, Asked, Peer, event, peer, result
from tests.transports.support import DEADLINE
from trio_mcp import (
    Backoff,
    Client,
    ClientSession,
    HttpError,
    RemoteProtocolError,
    RequestTimeout,
    TransportError,
    streamable_http_client,
)
from trio_mcp.protocol.messages import Notification

TEXT = {"content": [{"type": "text", "text": "ok"}]}
QUICK = Backoff(first=0.01, longest=0.02, attempts=3)
CHANGED = {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}


@pytest.fixture
def autojump_clock() -> MockClock:
    """Time that passes when nothing happens, with a moment for what is on its way through the kernel."""
    return MockClock(autojump_threshold=0.05)


async def ok(asked: Asked) -> None:
    await asked.result(TEXT)


@contextlib.asynccontextmanager
async def legacy(
    handlers: dict[str, Any] | None = None, *, reconnect: Backoff = QUICK, **options: Any
) -> AsyncIterator[tuple[Peer, Client]]:
    with trio.fail_after(DEADLINE):
        async with peer({"tools/call": ok, **(handlers or {})}) as server:

            def connect() -> Any:
                return streamable_http_client(server.url, reconnect=reconnect)

            async with Client(connect, mode="legacy", **options) as client:
                yield server, client


async def text(client: Client, tool: str = "t", **options: Any) -> str:
    return str((await client.call_tool(tool, **options)).content[0].text)  # type: ignore[union-attr]


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


async def test_a_session_is_ended_with_a_delete_and_a_server_that_does_not_answer_it_holds_nobody_up(
    autojump_clock: MockClock,
) -> None:
    """L, Session Management, 5."""

    async def never(asked: Asked) -> None:
        await asked.gone()

    async with peer({"DELETE": never}) as server:
        async with Client(server.url, mode="legacy"):
            pass
        assert server.methods()[-1] == "DELETE"


async def test_without_a_session_id_there_is_nothing_to_end() -> None:
    async def initialize(asked: Asked) -> None:
        await asked.result(INITIALIZED)

    async with legacy({"initialize": initialize}) as (server, client):
        assert await text(client) == "ok"
    assert "DELETE" not in server.methods()
    assert all("mcp-session-id" not in asked.headers for asked in server.asked)


async def test_requests_come_after_the_answer_to_the_get_that_listens() -> None:
    """A question that a server asks while it serves the first request may come on that stream, or not at all."""
    release = trio.Event()
    order: list[str] = []

    async def slow(asked: Asked) -> None:
        await release.wait()
        order.append("GET")
        await asked.begin_events()

    async def call(asked: Asked) -> None:
        order.append("tools/call")
        await asked.result(TEXT)

    async with legacy({"GET": slow, "tools/call": call}) as (server, client), trio.open_nursery() as nursery:
        nursery.start_soon(text, client)
        await server.until("GET")
        await trio.testing.wait_all_tasks_blocked()
        release.set()
    assert order == ["GET", "tools/call"]


async def test_a_get_that_is_not_answered_holds_requests_up_for_a_moment_only(autojump_clock: MockClock) -> None:
    """Some servers answer it with the first message, which may never come."""

    async def never(asked: Asked) -> None:
        await asked.gone()

    async with legacy({"GET": never}) as (_server, client):
        assert await text(client) == "ok"


@pytest.mark.parametrize("bad", ["a b", "x" * 5000, "é"])
async def test_a_session_id_that_can_be_none_is_refused(bad: str) -> None:
    async def initialize(asked: Asked) -> None:
        await asked.result(INITIALIZED, Mcp_Session_Id=bad)

    with pytest.raises(RemoteProtocolError, match="session id"):
        async with legacy({"initialize": initialize}):
            raise AssertionError("it connected")


async def test_requests_come_after_the_notice_that_opens_the_session() -> None:
    """`basic/lifecycle`: each POST is a task of its own, and yet a slow answer to the notice lets nothing overtake."""
    release = trio.Event()

    async def slow(asked: Asked) -> None:
        await release.wait()
        await asked.status(202)

    async with legacy({"notifications/initialized": slow}) as (server, client), trio.open_nursery() as nursery:
        nursery.start_soon(text, client)
        await server.until("notifications/initialized")
        await trio.testing.wait_all_tasks_blocked()
        assert "tools/call" not in server.methods()
        release.set()


async def test_notifications_keep_their_order() -> None:
    heard = []

    async def note(asked: Asked) -> None:
        heard.append(asked.body["params"]["number"])
        await asked.status(202)

    async with legacy({"x/note": note}) as (server, client):
        for number in range(20):
            await client.notify("x/note", {"number": number})
        await server.until("x/note", 20)
    assert heard == list(range(20))


async def test_a_notification_that_is_refused_is_told_and_costs_nothing_else() -> None:
    faults: list[RemoteProtocolError] = []
    told = trio.Event()

    async def refused(asked: Asked) -> None:
        await asked.status(500)

    def on_error(fault: RemoteProtocolError) -> None:
        faults.append(fault)
        told.set()

    async with legacy({"x/note": refused}, on_error=on_error) as (_, client):
        await client.notify("x/note")
        await told.wait()
        assert await text(client) == "ok"
    assert "'x/note' was not taken by the server: POST http" in str(faults[0])


# --- a session that the server forgets --------------------------------------------------------------------------


class Restarting:
    """A server that forgets its session when told to."""

    def __init__(self) -> None:
        self.number = 1
        self.refuse_all = False

    @property
    def session(self) -> str:
        return f"s{self.number}"

    async def initialize(self, asked: Asked) -> None:
        await asked.result(INITIALIZED, Mcp_Session_Id=self.session)

    async def call(self, asked: Asked) -> None:
        if self.refuse_all or asked.headers["mcp-session-id"] != self.session:
            await asked.status(404)
        else:
            await ok(asked)

    def handlers(self) -> dict[str, Any]:
        return {"initialize": self.initialize, "tools/call": self.call}


async def test_a_lost_session_leads_to_exactly_one_new_handshake_for_all_who_call() -> None:
    """L, Session Management, 4; each call is sent once more, as a server that knows no session has done nothing."""
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

        async def refused(asked: Asked) -> None:
            await asked.status(503, Retry_After="2")

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


async def test_a_server_that_comes_back_with_another_revision_is_another_server() -> None:
    restarting = Restarting()
    async with legacy(restarting.handlers()) as (server, client):
        restarting.number = 2

        async def older(asked: Asked) -> None:
            await asked.result({**INITIALIZED, "protocolVersion": "2025-03-26"}, Mcp_Session_Id="s2")

        server.handlers["initialize"] = older
        with pytest.raises(TransportError, match="now speaks '2025-03-26' instead of '2025-11-25'"):
            await client.call_tool("t")
        with pytest.raises(TransportError, match="now speaks"):
            await client.call_tool("t")


async def test_a_caller_that_leaves_while_the_session_is_renewed_does_not_take_it_from_the_others() -> None:
    restarting = Restarting()
    async with legacy(restarting.handlers()) as (server, client):
        restarting.number = 2
        release = trio.Event()

        async def slow(asked: Asked) -> None:
            await release.wait()
            await restarting.initialize(asked)

        server.handlers["initialize"] = slow
        async with trio.open_nursery() as nursery:
            scope = trio.CancelScope()

            async def leaving() -> None:
                with scope:
                    await text(client)

            nursery.start_soon(leaving)
            await server.until("initialize", 2)
            nursery.start_soon(text, client)
            await trio.testing.wait_all_tasks_blocked()
            scope.cancel()
            await trio.testing.wait_all_tasks_blocked()
            release.set()
        assert server.methods().count("initialize") == 2


@pytest.mark.parametrize("refused", ["GET", "DELETE", "initialize"])
async def test_what_a_hook_of_the_callers_client_raises_costs_one_exchange(
    refused: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Authentication is such a hook; it may fail when the link listens, opens another session, or ends one."""
    restarting, armed, faults = Restarting(), False, list[RemoteProtocolError]()

    async def hook(request: httpx.Request) -> None:
        if armed and (refused == request.method or f'"{refused}"'.encode() in request.content):
            raise LookupError("no token")

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

            async with Client(connect, mode="legacy", on_error=faults.append) as client:
                await server.until("GET")
                armed = True
                if refused == "initialize":
                    restarting.number = 2
                    with pytest.raises(TransportError, match="no token"):
                        await client.call_tool("t")
                    armed = False
                elif refused == "GET":
                    while not faults:  # noqa: ASYNC110
                        await trio.sleep(0.01)
                    assert "no token" in str(faults[0])
                assert await text(client) == "ok"


# --- the server's own stream ------------------------------------------------------------------------------------


async def test_the_server_speaks_on_its_own_stream_and_its_requests_are_answered() -> None:
    """L, Listening for Messages from the Server; answers are POSTed."""
    heard: list[Notification] = []

    async def get(asked: Asked) -> None:
        await asked.begin_events()
        await asked.chunk(event(CHANGED) + event({"jsonrpc": "2.0", "id": "q", "method": "ping"}))
        await asked.gone()

    async with legacy({"GET": get}, on_message=heard.append) as (server, _):
        answer = await server.until("answer")
        assert answer.body == {"jsonrpc": "2.0", "id": "q", "result": {}}
        assert server.asked[2].headers["accept"] == "text/event-stream"
    assert heard == [Notification("notifications/tools/list_changed")]


@pytest.mark.parametrize("status", [405, 404, 400])
async def test_a_server_without_a_stream_of_its_own_is_not_asked_again(status: int) -> None:
    """L: or else return 405; others say it in their own ways."""

    async def get(asked: Asked) -> None:
        await asked.status(status)

    async with legacy({"GET": get}) as (server, client):
        await server.until("GET")
        assert await text(client) == "ok"
        await trio.testing.wait_all_tasks_blocked()
    assert server.methods().count("GET") == 1
    assert server.methods().count("initialize") == 1


async def test_the_stream_is_gone_on_with_where_it_broke_off_after_the_time_the_server_asks_for(
    autojump_clock: MockClock,
) -> None:
    """L, Sending Messages, 6: the client MUST respect the retry field; Resumability, 2: Last-Event-ID."""
    times: list[float] = []

    async def get(asked: Asked) -> None:
        times.append(trio.current_time())
        await asked.begin_events()
        if len(times) < 4:
            await asked.chunk(b"retry: 45000\n" + event(CHANGED, f"e{len(times)}"))
            await (asked.abort() if len(times) == 2 else asked.end_events())
        else:
            await asked.gone()

    with trio.fail_after(1000):
        async with peer({"GET": get}) as server, Client(server.url, mode="legacy"):
            gets = [await server.until("GET", number) for number in (1, 2, 3, 4)]
    assert [asked.headers.get("last-event-id") for asked in gets] == [None, "e1", "e2", "e3"]
    waits = [there - here for here, there in itertools.pairwise(times)]
    assert all(wait >= 45 for wait in waits)


async def test_a_stream_that_can_not_be_had_again_is_given_up_and_said_so() -> None:
    faults: list[str] = []
    told = trio.Event()

    def on_error(fault: RemoteProtocolError) -> None:
        faults.append(str(fault))
        told.set()

    async def get(asked: Asked) -> None:
        if server.methods().count("GET") == 1:
            await asked.begin_events()
            await asked.chunk(event(CHANGED))
            await asked.end_events()
        else:
            await asked.status(503)

    with trio.fail_after(DEADLINE):
        async with peer({"GET": get, "tools/call": ok}) as server:

            def connect() -> Any:
                return streamable_http_client(server.url, reconnect=QUICK)

            async with Client(connect, mode="legacy", on_error=on_error) as client:
                await told.wait()
                assert await text(client) == "ok"
    assert server.methods().count("GET") == 1 + QUICK.attempts
    assert "not heard any more" in faults[0]
    assert "given up after 3 further attempts" in faults[0]


async def test_a_stream_that_says_the_session_is_lost_opens_another_without_being_asked() -> None:
    restarting = Restarting()

    async def get(asked: Asked) -> None:
        if asked.headers["mcp-session-id"] != restarting.session:
            await asked.status(404)
            return
        await asked.begin_events()
        await asked.chunk(b": hello\n\n")
        await lost.wait()
        await (asked.end_events() if restarting.number == 2 else asked.gone())

    lost = trio.Event()
    async with legacy({**restarting.handlers(), "GET": get}) as (server, _):
        await server.until("GET")
        restarting.number = 2
        lost.set()
        await server.until("initialize", 2)
        assert (await server.until("GET", 3)).headers["mcp-session-id"] == "s2"


# --- answers as streams -----------------------------------------------------------------------------------------


async def test_a_call_whose_stream_breaks_is_gone_on_with() -> None:
    """The answer comes on a GET with the last event id; nothing is called twice, nothing heard twice."""
    progress: list[float] = []

    async def call(asked: Asked) -> None:
        calls.append(asked)
        await asked.begin_events()
        token = asked.body["params"]["_meta"]["progressToken"]
        await asked.chunk(b"id: p\ndata:\n\n")
        await asked.chunk(event(note(token, 1), "e1"))
        await asked.abort()

    def note(token: Any, number: int) -> dict[str, Any]:
        params = {"progressToken": token, "progress": number}
        return {"jsonrpc": "2.0", "method": "notifications/progress", "params": params}

    async def get(asked: Asked) -> None:
        last = asked.headers.get("last-event-id")
        if last is None:
            await asked.status(405)
            return
        seen.append(last)
        token = calls[0].body["params"]["_meta"]["progressToken"]
        if last == "e1":
            await asked.begin_events()
            await asked.chunk(event(note(token, 2), "e2"))
            await asked.end_events()
        elif len(seen) == 2:
            await asked.status(503)
        else:
            await asked.begin_events()
            await asked.chunk(event(result(calls[0].id, TEXT), "e3"))
            await asked.end_events()

    calls: list[Asked] = []
    seen: list[str] = []
    async with legacy({"tools/call": call, "GET": get}) as (server, client):
        assert await text(client, on_progress=lambda note: progress.append(note.progress)) == "ok"
    assert progress == [1, 2]
    assert seen == ["e1", "e2", "e2"]
    assert server.methods().count("tools/call") == 1


@pytest.mark.parametrize("ends", ["refused", "empty"])
async def test_a_stream_that_never_brings_the_answer_fails_the_call(ends: str) -> None:
    async def call(asked: Asked) -> None:
        await asked.begin_events()
        await asked.chunk(event(b"", "e1"))
        await asked.end_events()

    async def get(asked: Asked) -> None:
        if "last-event-id" not in asked.headers:
            await asked.status(405)
        elif ends == "refused":
            await asked.status(400, b"no such event")
        else:
            await asked.begin_events()
            await asked.end_events()

    async with legacy({"tools/call": call, "GET": get}) as (_, client):
        with pytest.raises(TransportError, match="no such event" if ends == "refused" else "given up after 3"):
            await client.call_tool("t")
        await client.ping()


async def test_a_call_whose_stream_the_restarted_server_does_not_know_is_not_made_twice() -> None:
    """The session is renewed for the calls to come; whether this one was carried out nobody knows."""
    restarting = Restarting()

    async def call(asked: Asked) -> None:
        if restarting.number == 2:
            await restarting.call(asked)
            return
        await asked.begin_events()
        await asked.chunk(event(b"", "e1"))
        restarting.number = 2
        await asked.end_events()

    async def get(asked: Asked) -> None:
        await asked.status(405 if "last-event-id" not in asked.headers else 404)

    async with legacy({**restarting.handlers(), "tools/call": call, "GET": get}) as (server, client):
        with pytest.raises(HttpError) as caught:
            await client.call_tool("t")
        assert caught.value.trouble == "session_lost"
        assert await text(client) == "ok"
    assert server.methods().count("initialize") == 2
    assert server.methods().count("tools/call") == 2


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
        await closed.wait()  # the stream that nobody wants is closed when the server has been told
        with pytest.raises(RequestTimeout):
            await client.call_tool("never", timeout=0.01)
        await server.until("notifications/cancelled", 2)


async def test_the_link_by_hand() -> None:
    """A transport knows no session: whoever has the link may speak as they like."""
    with trio.fail_after(DEADLINE):
        async with (
            peer({"tools/call": ok}) as server,
            streamable_http_client(server.url) as (read, write),
            ClientSession(read, write) as session,
        ):
            await session.initialize()
            assert (await session.send_request("tools/call", {"name": "t"}))["content"] == TEXT["content"]


async def test_an_answer_that_can_not_be_written_is_replaced(caplog: pytest.LogCaptureFixture) -> None:
    async def get(asked: Asked) -> None:
        await asked.begin_events()
        await asked.chunk(event({"jsonrpc": "2.0", "id": "q", "method": "x/ask"}))
        await asked.gone()

    with trio.fail_after(DEADLINE):
        async with (
            peer({"GET": get}) as server,
            streamable_http_client(server.url) as (read, write),
            ClientSession(read, write) as session,
        ):

            async def answer(responder: Any) -> dict[str, Any]:
                return {"not": float("nan")}

            session.add_request_handler("x/ask", answer)
            with caplog.at_level(logging.CRITICAL, "trio_mcp"):
                await session.initialize()
                replaced = await server.until("answer")
    assert replaced.body["error"]["code"] == -32603
