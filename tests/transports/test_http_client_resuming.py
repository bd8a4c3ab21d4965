"""The legacy era over HTTP: the server's own stream, responses as streams, and what is broken or forgotten.

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

from tests.http_peer import INITIALIZED, Asked, Handler, event, giving, peer, plain, progress, result, streaming
from tests.transports.http_calls import serving
from tests.transports.http_legacy import CHANGED, QUICK, TEXT, Faults, Restarting, legacy, text
from tests.transports.support import DEADLINE
from trio_mcp import AuthorizationError, Client, HttpError, LoginRequired, TransportError
from trio_mcp.http.client.auth import Attempt, Pause, Signer
from trio_mcp.http.headers import Headers
from trio_mcp.jsonrpc.messages import Notification
from trio_mcp.low_level import streamable_http_client

pytestmark = pytest.mark.legacy


# --- the server's own stream ------------------------------------------------------------------------------------


async def test_the_server_speaks_on_its_own_stream_and_its_requests_are_answered() -> None:
    """L, Listening for Messages from the Server; answers are POSTed."""
    heard: list[Notification] = []
    get = streaming(event(CHANGED) + event({"jsonrpc": "2.0", "id": "q", "method": "ping"}), then="gone")
    async with legacy({"GET": get}, on_message=heard.append) as (server, _):
        answer = await server.until("answer")
        assert answer.body == {"jsonrpc": "2.0", "id": "q", "result": {}}
        assert server.asked[2].headers["accept"] == "text/event-stream"
    assert heard == [Notification("notifications/tools/list_changed")]


@pytest.mark.parametrize("status", [405, 404, 400])
async def test_a_server_without_a_stream_of_its_own_is_not_asked_again(status: int) -> None:
    """L: or else return 405; others say it in their own ways."""
    async with legacy({"GET": plain(status)}) as (server, client):
        await server.until("GET")
        assert await text(client) == "ok"
        await trio.testing.wait_all_tasks_blocked()
    assert server.methods().count("GET") == 1
    assert server.methods().count("initialize") == 1


async def test_the_stream_is_resumed_where_it_broke_off_after_the_servers_retry_time(
    autojump_clock: MockClock,
) -> None:
    """L, Sending Messages, 6: the client MUST respect the retry field; Resumability, 2: Last-Event-ID."""
    times: list[float] = []

    async def get(asked: Asked) -> None:
        times.append(trio.current_time())
        then = {2: "abort", 4: "gone"}.get(len(times), "end_events")
        await asked.events(b"retry: 45000\n" + event(CHANGED, f"e{len(times)}"), then=then)

    with trio.fail_after(1000):
        async with peer({"GET": get}) as server, Client(server.url, mode="legacy"):
            gets = [await server.until("GET", number) for number in (1, 2, 3, 4)]
    assert [asked.headers.get("last-event-id") for asked in gets] == [None, "e1", "e2", "e3"]
    waits = [there - here for here, there in itertools.pairwise(times)]
    assert all(wait >= 45 for wait in waits)


async def test_a_stream_that_cannot_be_reopened_is_given_up_with_an_error() -> None:
    faults = Faults()

    async def get(asked: Asked) -> None:
        await (asked.events(event(CHANGED)) if server.methods().count("GET") == 1 else asked.status(503))

    async with legacy({"GET": get}, options=faults.options) as (server, client):
        await faults.told.wait()
        assert await text(client) == "ok"
    assert server.methods().count("GET") == 1 + QUICK.attempts
    assert "are no longer received" in faults.said[0]
    assert "after 3 attempts" in faults.said[0]


@pytest.mark.parametrize(("lasts", "kept"), [(60, True), (5, True), (1, False)])
async def test_a_stream_on_which_nothing_happens_is_not_given_up_although_something_cuts_it_now_and_then(
    lasts: float, kept: bool, autojump_clock: MockClock
) -> None:
    """A proxy may end what has been open or idle for a while. Only connections that soon break are attempts in vain."""
    faults = Faults()

    async def get(asked: Asked) -> None:
        await asked.begin_events()
        if server.methods().count("GET") > 20:
            await asked.chunk(event(CHANGED))
        await trio.sleep(lasts)
        await asked.abort()

    def hear(notification: Notification) -> None:
        faults.told.set()

    with trio.fail_after(10_000):
        async with (
            peer({"GET": get}) as server,
            Client(server.url, mode="legacy", on_message=hear, options=faults.options),
        ):
            await faults.told.wait()
    assert bool(faults.said) != kept, faults.said


async def test_a_stream_that_finds_the_session_lost_renews_it_without_a_call() -> None:
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


async def test_a_call_whose_stream_breaks_is_resumed() -> None:
    """The answer comes on a GET with the last event id; nothing is called twice, nothing heard twice."""
    heard: list[float] = []

    def token() -> Any:
        return calls[0].body["params"]["_meta"]["progressToken"]

    async def call(asked: Asked) -> None:
        calls.append(asked)
        await asked.events(b"id: p\ndata:\n\n", event(progress(token(), 1), "e1"), then="abort")

    async def get(asked: Asked) -> None:
        last = asked.headers.get("last-event-id")
        if last is None:
            await asked.status(405)
            return
        seen.append(last)
        if last == "e1":
            await asked.events(event(progress(token(), 2), "e2"))
        elif len(seen) == 2:
            await asked.status(503)
        else:
            await asked.events(event(result(calls[0].id, TEXT), "e3"))

    calls: list[Asked] = []
    seen: list[str] = []
    async with legacy({"tools/call": call, "GET": get}) as (server, client):
        assert await text(client, on_progress=lambda note: heard.append(note.progress)) == "ok"
    assert heard == [1, 2]
    assert seen == ["e1", "e2", "e2"]
    assert server.methods().count("tools/call") == 1


NO_STREAM: dict[str, tuple[Handler, str]] = {
    **{
        str(status): (plain(status, b"no such event"), "no such event")
        for status in (400, 401, 403, 405, 409, 410, 413)
    },
    **{str(status): (plain(status), "after 3 attempts") for status in (429, 500, 501, 502, 503, 504)},
    "429, come back tomorrow": (plain(429, Retry_After="86400"), "after 1 attempt;"),
    "redirected": (plain(302, Location="http://elsewhere.example/"), "which is not followed"),
    "redirected forever": (plain(307, Location="/mcp?again"), "which is not followed"),
    "JSON": (plain(200, {}), "neither JSON nor events"),
    "HTML": (plain(200, b"sign in", Content_Type="text/html"), "neither JSON nor events"),
    "204": (plain(204), "status 204"),
    "compressed": (streaming(Content_Encoding="gzip"), "a body encoded as 'gzip'"),
    "cut off": (Asked.abort, "after 3 attempts"),
    "empty": (streaming(), "after 3 attempts"),
}


@pytest.mark.parametrize("ends", NO_STREAM)
async def test_a_call_whose_stream_can_not_be_resumed_has_lost_its_connection(ends: str) -> None:
    """It has reached the server, which may have done what it asks; so it must not read as refused."""
    resumed, why = NO_STREAM[ends]

    async def get(asked: Asked) -> None:
        await (asked.status(405) if "last-event-id" not in asked.headers else resumed(asked))

    async with legacy({"tools/call": streaming(event(b"", "e1")), "GET": get}) as (server, client):
        with pytest.raises(TransportError, match=why) as caught:
            await client.call_tool("t")
        assert not isinstance(caught.value, HttpError)
        assert "the event stream of POST" in str(caught.value)
        assert "may have done" in str(caught.value)
        assert caught.value.sent
        await client.ping()
    assert server.methods().count("tools/call") == 1


@pytest.mark.parametrize("status", [401, 404, 405])
async def test_a_list_whose_stream_can_not_be_resumed_is_asked_for_again(status: int) -> None:
    """Like any other whose connection is lost: asking twice does no harm."""
    restarting = Restarting()

    async def tools(asked: Asked) -> None:
        if server.methods().count("tools/list") == 1:
            restarting.number += status == 404
            await asked.events(event(b"", "e1"))
        else:
            await asked.result({"tools": []})

    async def get(asked: Asked) -> None:
        await asked.status(405 if "last-event-id" not in asked.headers else status)

    async with legacy({**restarting.handlers(), "tools/list": tools, "GET": get}) as (server, client):
        assert not (await client.list_tools()).tools
    assert server.methods().count("initialize") == 1 + (status == 404)


class Login:
    """An ``auth=`` whose login can be renewed, or not."""

    def __init__(self, renewable: bool) -> None:
        self.token, self.renewable = 1, renewable

    @contextlib.asynccontextmanager
    async def opened(self, server: str, pause: Pause) -> AsyncIterator[Signer]:
        yield self

    def attempt(self) -> Attempt:
        return self

    async def fields(self, method: str, url: str) -> list[tuple[str, str]]:
        return [("Authorization", f"Bearer {self.token}")]

    async def again(self, status: int, headers: Headers) -> bool:
        if status != 401:
            return False
        if not self.renewable:
            raise LoginRequired("authorization", "no person is there", advice="sign in first")
        self.token += 1
        return True


@pytest.mark.parametrize("renewable", [True, False])
async def test_a_login_that_expires_with_a_stream_open_is_renewed_or_the_connection_is_lost(renewable: bool) -> None:
    """What could not be resumed for want of a login was sent, and perhaps carried out."""
    login = Login(renewable)

    async def get(asked: Asked) -> None:
        if "last-event-id" not in asked.headers:
            await asked.status(405)
        elif asked.headers["authorization"] == "Bearer 1":
            await asked.status(401)
        else:
            await asked.events(event(result(calls.id, TEXT), "e2"))

    async with serving({"tools/call": streaming(event(b"", "e1")), "GET": get}) as server:

        def connect() -> Any:
            return streamable_http_client(server.url, reconnect=QUICK, auth=login)

        async with Client(connect, mode="legacy") as client, trio.open_nursery() as nursery:

            @nursery.start_soon
            async def call() -> None:
                if renewable:
                    assert await text(client) == "ok"
                    return
                with pytest.raises(TransportError, match="sign in first") as caught:
                    await client.call_tool("t")
                assert not isinstance(caught.value, AuthorizationError)
                assert caught.value.sent

            calls = await server.until("tools/call")
    assert server.methods().count("tools/call") == 1


async def test_a_session_that_can_not_be_opened_again_says_nothing_about_a_call_that_had_begun() -> None:
    """The refusal of ``initialize`` must not read as one of the call, which asks to be sent again later."""
    restarting = Restarting()

    async def get(asked: Asked) -> None:
        await asked.status(405 if "last-event-id" not in asked.headers else 404)

    call = streaming(event(b"", "e1"))
    async with legacy({**restarting.handlers(), "tools/call": call, "GET": get}) as (server, client):
        server.handlers["initialize"] = plain(503, Retry_After="2")
        with pytest.raises(TransportError, match="may have done") as caught:
            await client.call_tool("t")
        assert not isinstance(caught.value, HttpError)
        assert caught.value.sent


async def test_a_call_whose_stream_the_restarted_server_does_not_know_is_not_made_twice() -> None:
    """The session is renewed for later calls; whether this one was carried out is unknown."""
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
        with pytest.raises(TransportError, match=r"forgotten the session; the server may have done") as caught:
            await client.call_tool("t")
        assert not isinstance(caught.value, HttpError)
        assert await text(client) == "ok"
    assert server.methods().count("initialize") == 2
    assert server.methods().count("tools/call") == 2


# --- a session that the server forgets --------------------------------------------------------------------------


async def test_a_cursor_is_not_used_in_another_session() -> None:
    """``server/utilities/pagination``, Implementation Guidelines: don't persist cursors across sessions."""
    restarting = Restarting()
    cursors = []

    async def pages(asked: Asked) -> None:
        cursors.append((asked.headers["mcp-session-id"], (asked.body.get("params") or {}).get("cursor")))
        await (asked.result({"tools": [], "nextCursor": "c"}) if restarting.knows(asked) else asked.status(404))

    async with legacy({**restarting.handlers(), "tools/list": pages}) as (server, client):
        first = await client.list_tools()
        restarting.number = 2
        with pytest.raises(HttpError) as caught:
            await client.list_tools(first.next_cursor)
        assert caught.value.trouble == "session_lost"
        assert (await client.list_tools()).next_cursor == "c"
    assert cursors == [("s1", None), ("s1", "c"), ("s2", None)]
    assert server.methods().count("initialize") == 2


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


class ForgetsAtOnce(Restarting):
    """A server that is restarted between ``initialize`` and ``notifications/initialized``, the first times."""

    def __init__(self, times: int) -> None:
        super().__init__()
        self.times = times

    def handlers(self) -> dict[str, Any]:
        return {**super().handlers(), "notifications/initialized": self.initialized, "GET": self.get}

    async def initialized(self, asked: Asked) -> None:
        if self.times:
            self.times -= 1
            self.number += 1
        await asked.status(202 if self.knows(asked) else 404)

    async def get(self, asked: Asked) -> None:
        await (asked.events(event(CHANGED), then="gone") if self.knows(asked) else asked.status(404))


async def test_a_session_forgotten_before_it_was_announced_is_opened_again() -> None:
    """L, Session Management, 4; also if no call follows, or the server's own messages would not be heard."""
    server, faults, heard = ForgetsAtOnce(1), Faults(), trio.Event()
    async with legacy(server.handlers(), options=faults.options, on_message=lambda message: heard.set()) as (
        asked,
        client,
    ):
        await heard.wait()
        assert await text(client) == "ok"
    assert faults.said == []
    assert asked.methods()[:5] == [
        "initialize",
        "notifications/initialized",
        "initialize",
        "notifications/initialized",
        "GET",
    ]


async def test_a_session_opened_again_that_is_forgotten_before_it_was_announced_is_opened_once_more() -> None:
    server = ForgetsAtOnce(0)
    async with legacy(server.handlers()) as (asked, client):
        assert await text(client) == "ok"
        server.number, server.times = 2, 1
        assert await text(client) == "ok"
    assert asked.methods().count("initialize") == 3
    assert asked.methods().count("tools/call") == 3


async def test_a_server_that_always_forgets_before_the_session_is_announced_is_asked_no_more() -> None:
    server, faults = ForgetsAtOnce(1000), Faults()
    async with legacy(server.handlers(), options=faults.options) as (asked, client):
        await faults.told.wait()
        assert "has forgotten the session" in faults.said[0]
        opened = asked.methods().count("initialize")
        with pytest.raises(HttpError) as caught:
            await client.call_tool("t")
        assert caught.value.trouble == "session_lost"
        assert asked.methods().count("initialize") <= opened + 2
    assert opened == 3


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
        with pytest.raises(TransportError, match="now speaks revision '2025-03-26' instead of '2025-11-25'"):
            await client.call_tool("t")
        with pytest.raises(TransportError, match="now speaks"):
            await client.call_tool("t")


@pytest.mark.parametrize("refused", ["GET", "DELETE", "initialize"])
async def test_what_a_hook_of_the_callers_client_raises_costs_one_exchange(
    refused: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Authentication is such a hook; it may fail when the link listens, opens another session, or ends one."""
    restarting, armed, faults = Restarting(), False, Faults()

    async def hook(request: httpx.Request) -> None:
        if armed and (refused == request.method or f'"{refused}"'.encode() in request.content):
            raise LookupError("no token")

    async def get(asked: Asked) -> None:
        await (asked.events(event(CHANGED, "e1")) if restarting.knows(asked) else asked.status(404))

    with trio.fail_after(DEADLINE), caplog.at_level(logging.CRITICAL, "trio_mcp"):
        async with (
            peer({**restarting.handlers(), "GET": get}) as server,
            httpx.AsyncClient(event_hooks={"request": [hook]}) as http_client,
        ):

            def connect() -> Any:
                return streamable_http_client(server.url, http_client=http_client, reconnect=QUICK)

            async with Client(connect, mode="legacy", options=faults.options) as client:
                await server.until("GET")
                armed = True
                if refused == "initialize":
                    restarting.number = 2
                    with pytest.raises(TransportError, match="no token"):
                        await client.call_tool("t")
                    armed = False
                elif refused == "GET":
                    await faults.told.wait()
                    assert "no token" in faults.said[0]
                assert await text(client) == "ok"
