"""No time limit of a client runs while a person is asked; all times are those of the virtual clock."""

from __future__ import annotations

import contextlib
import math
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
import trio

from tests.auth.seam.stubs import (
    SECRET,
    Answer,
    Memory,
    Person,
    Streaming,
    answered,
    client_of,
    link,
    only_legacy,
    protected,
    refusal,
    rpc,
)
from tests.http_peer import event, result
from trio_mcp import (
    AuthorizationError,
    CallOptions,
    Client,
    ClientGroup,
    FailoverParameters,
    RequestTimeout,
    ResponseCache,
    SessionOptions,
    ToolsListChanged,
    TransportError,
)
from trio_mcp.link import Link
from trio_mcp.low_level import ClientSession, sse_client
from trio_mcp.stopwatch import Stopwatch, TimeLimit, current_stopwatch
from trio_mcp.types import meta

ACKNOWLEDGED = "notifications/subscriptions/acknowledged"
LISTED = {"resultType": "complete", "ttlMs": 600_000, "cacheScope": "private"}
LONG = 3000.0
"""Seconds that the person takes: far more than any time limit."""


def options(**given: Any) -> SessionOptions:
    return SessionOptions(calls=CallOptions(**given))


def wanting(method: str, behind: Answer = answered) -> Answer:
    """Return a server that wants a token for one method alone."""

    async def answer(request: httpx.Request) -> httpx.Response:
        return await (protected(behind) if rpc(request)["method"] == method else behind)(request)

    return answer


@pytest.mark.parametrize(
    ("answer", "settings"),
    [
        pytest.param(protected(), options(connect_timeout=1, probe_timeout=1), id="connect_timeout, probe_timeout"),
        pytest.param(protected(only_legacy), options(connect_timeout=1), id="the same, legacy"),
        pytest.param(wanting("notifications/initialized", only_legacy), options(), id="POST_TIMEOUT"),
        pytest.param(wanting("GET", only_legacy), options(), id="the server's own stream"),
        pytest.param(wanting("tools/call"), options(timeout=1), id="timeout"),
        pytest.param(wanting("tools/call"), options(timeout=None, total_timeout=1), id="total_timeout"),
        pytest.param(wanting("tools/call"), options(timeout=1, reset_on_progress=True), id="reset_on_progress"),
        pytest.param(wanting("tools/call", only_legacy), options(timeout=1), id="timeout, legacy"),
    ],
)
async def test_a_person_has_as_long_as_it_takes(answer: Answer, settings: Any, autojump_clock: Any) -> None:
    auth, faults = Person(takes=LONG), []
    settings = SessionOptions(calls=settings.calls, on_error=faults.append)
    async with client_of(answer, auth, options=settings) as (_, client):
        assert (await client.call_tool("fine")).content[0].text == "tools/call"  # type: ignore[union-attr]
        await trio.sleep(LONG)
    assert (auth.asked, faults) == (1, [])


@pytest.mark.parametrize(
    "limits",
    [{"timeout": 10}, {"timeout": None, "total_timeout": 10}, {"timeout": 10, "total_timeout": 50}],
    ids=str,
)
@pytest.mark.parametrize("progress", [False, True])
@pytest.mark.parametrize("begun", [-4, 0.5])
async def test_what_counts_is_the_time_before_and_after(
    limits: dict[str, Any], progress: bool, begun: float, autojump_clock: Any
) -> None:
    """A call to a server that hangs, begun this long after a person was asked, for another call."""
    auth = Person(takes=100.3)
    async with client_of(wanting("tools/list"), auth) as (_, client), trio.open_nursery() as nursery:
        start = trio.current_time() + 5

        async def sign_in() -> None:
            await trio.sleep_until(start)
            with contextlib.suppress(Exception):  # the answer is not a list
                await client.list_tools()

        nursery.start_soon(sign_in)
        await trio.sleep_until(start + begun)
        if progress:
            limits = {**limits, "on_progress": lambda _: None}
        with pytest.raises(RequestTimeout) as caught:
            await client.call_tool("hang", **limits)
        assert caught.value.limit == next(name for name in ("timeout", "total_timeout") if limits.get(name))
        # Ten seconds that count: those before it, and the rest after it.
        assert trio.current_time() == pytest.approx(start + 100.3 + 10 + min(begun, 0))
    assert auth.asked == 1


async def test_a_server_that_hangs_afterwards_fails_in_time(autojump_clock: Any) -> None:
    async def hangs(request: httpx.Request) -> httpx.Response:
        if not request.headers.get("authorization"):
            return refusal()
        await trio.sleep_forever()
        raise AssertionError

    start = trio.current_time()
    with pytest.raises(TransportError, match="connect_timeout=20 "):
        async with client_of(hangs, Person(takes=LONG), options=options(connect_timeout=20, probe_timeout=60)):
            raise AssertionError("it connected")
    assert trio.current_time() - start == pytest.approx(LONG + 20)


async def test_a_session_that_was_forgotten_is_opened_anew_when_a_person_has_signed_in(autojump_clock: Any) -> None:
    sessions = ["1"]

    async def forgetful(request: httpx.Request) -> httpx.Response:
        given, method = request.headers.get("Mcp-Session-Id"), rpc(request)["method"]
        if method == "initialize" and not request.headers.get("authorization") and len(sessions) > 1:
            return refusal()
        if given is not None and given != sessions[-1]:
            return httpx.Response(404)
        response = await only_legacy(request)
        response.headers["Mcp-Session-Id"] = sessions[-1]
        return response

    auth = Person(takes=LONG)
    async with client_of(forgetful, auth, mode="legacy") as (_, client):
        sessions.append("2")
        await client.call_tool("fine", timeout=1)
    assert auth.asked == 1


async def test_the_old_transport_waits_for_its_endpoint_as_well(autojump_clock: Any) -> None:
    endpoint = Streaming(b"event: endpoint\ndata: /messages\n\n")

    async def old(request: httpx.Request) -> httpx.Response:
        if request.method == "GET":
            return endpoint.response()
        return httpx.Response(202)

    auth = Person(takes=LONG)
    async with (
        httpx.AsyncClient(transport=Memory(protected(old))) as http_client,
        sse_client("https://mcp.example.com/sse", auth=auth, http_client=http_client),
    ):
        assert auth.signed[-1] == ("GET", "https://mcp.example.com/sse")
    assert auth.asked == 1


async def test_a_session_without_a_client_waits_as_well(autojump_clock: Any) -> None:
    async with link(Memory(protected()), Person(takes=LONG))() as opened, ClientSession(*opened) as session:
        await session.negotiate(timeout=1)


# --- subscriptions ----------------------------------------------------------------------------------------------------


def subscribable(*ends: Streaming | Exception, needs: bool = True) -> Answer:
    """Return a server with subscriptions that end like this, one after the other."""
    left = list(ends)

    async def answer(request: httpx.Request) -> httpx.Response:
        message = rpc(request)
        if message["method"] == "tools/list":
            return httpx.Response(200, json=result(message["id"], {**LISTED, "tools": []}))
        if message["method"] != "subscriptions/listen":
            return await answered(request)
        if needs and not request.headers.get("authorization"):
            return refusal()
        stream = left.pop(0)
        if isinstance(stream, Exception):
            raise stream
        stamp = {"_meta": {meta.SUBSCRIPTION_ID: message["id"]}}
        agreed = {
            "jsonrpc": "2.0",
            "method": ACKNOWLEDGED,
            "params": {"notifications": {"toolsListChanged": True}, **stamp},
        }
        over = [] if stream.cut else [event(result(message["id"], {"resultType": "complete", **stamp}))]
        stream.parts = (event(agreed),)
        stream.last = over
        return stream.response()

    return answer


async def test_the_opening_of_a_subscription_waits_for_a_person(autojump_clock: Any) -> None:
    auth = Person(takes=LONG)
    async with (
        client_of(subscribable(Streaming()), auth) as (_, client),
        client.listen(tools_list_changed=True, timeout=1),
    ):
        assert auth.asked == 1


@pytest.mark.parametrize("cut", [False, True])
async def test_what_may_have_changed_between_two_subscriptions_is_told(cut: bool, autojump_clock: Any) -> None:
    ends = Streaming(lasts=5, cut=cut), Streaming(lasts=5, cut=cut), httpx.ConnectError("gone")
    cache = ResponseCache()
    async with (
        client_of(subscribable(*ends), Person(), cache=cache) as (memory, client),
        client.listen(tools_list_changed=True) as events,
    ):
        await client.list_tools()
        await client.list_tools()
        assert await anext(events) == ToolsListChanged()
        await client.list_tools()
        assert memory.sent.count("tools/list") == 2
        # It can't be opened once more, so it ends as it did.
        with pytest.raises(TransportError, match="cut") if cut else contextlib.nullcontext():
            assert [each async for each in events] == []
        assert events.ended is not cut


async def test_a_subscription_that_ends_at_once_is_not_opened_again(autojump_clock: Any) -> None:
    async with (
        client_of(subscribable(Streaming(lasts=0.5), Streaming()), Person(token=SECRET)) as (memory, client),
        client.listen(tools_list_changed=True) as events,
    ):
        assert [each async for each in events] == []
    assert memory.sent.count("subscriptions/listen") == 1


# --- clients that have several servers, or several ways to one -------------------------------------------------------


async def test_a_way_waits_for_its_person_and_the_next_is_not_tried(autojump_clock: Any) -> None:
    auth, other = Person(takes=LONG), Memory(answered)
    memory = Memory(protected())
    ways = [link(memory, auth), link(other, None)]
    settings = FailoverParameters(ways, attempt_timeout=2, head_start=1, patience=5)
    async with Client(settings, options=options(connect_timeout=10, probe_timeout=8)) as client:
        await client.call_tool("fine")
        assert (auth.asked, other.sent) == (1, [])
        # Signs of life are asked for, and must be authorized, too.
        auth.token = None
        await trio.sleep(60)
        assert (client.transport.switches, auth.asked) == (0, 2)
        await client.call_tool("fine", timeout=1)


async def test_connecting_a_way_takes_as_long_as_its_person(autojump_clock: Any) -> None:
    @contextlib.asynccontextmanager
    async def slow() -> AsyncIterator[Link]:
        with current_stopwatch().pause():
            await trio.sleep(LONG)
        async with link(Memory(answered), None)() as opened:
            yield opened

    ways = FailoverParameters([slow], attempt_timeout=2, patience=5)
    async with Client(ways, options=options(connect_timeout=10)) as client:
        await client.call_tool("fine")


async def test_a_way_is_not_in_doubt_because_a_person_says_no_to_a_call(autojump_clock: Any) -> None:
    no, other = Person(takes=1, denies=True), Memory(answered)
    async with Client([link(Memory(wanting("tools/call")), no), link(other, None)]) as client:
        with pytest.raises(AuthorizationError):
            await client.call_tool("fine")
        assert (no.asked, client.transport.switches, other.sent) == (1, 0, [])


async def test_a_person_who_says_no_is_not_asked_again_by_a_way_or_a_group(autojump_clock: Any) -> None:
    no = Person(takes=1, denies=True)
    async with Client([link(Memory(protected()), no), link(Memory(answered), None)]) as client:
        await trio.sleep(LONG)
        await client.call_tool("fine")
    assert no.asked == 1
    async with ClientGroup({"a": link(Memory(protected()), no)}, require="none") as group:
        await trio.sleep(LONG)
        assert group.status["a"].retry_at is None
        assert isinstance(group.status["a"].cause, AuthorizationError)
    assert no.asked == 2


async def test_a_login_that_all_ways_lack_is_the_error(autojump_clock: Any) -> None:
    no = Person(takes=1, denies=True)
    with pytest.raises(AuthorizationError, match="access_denied"):
        async with Client([link(Memory(protected()), no), link(Memory(protected()), no)]):
            raise AssertionError("it connected")


async def test_one_server_of_a_group_signs_in_while_the_others_go_on(autojump_clock: Any) -> None:
    auth = Person(takes=LONG)
    servers: dict[str, Any] = {"slow": link(Memory(protected()), auth), "quick": link(Memory(answered), None)}
    async with ClientGroup(servers, require="none") as group:
        await trio.sleep(1)
        assert {name: status.state for name, status in group.status.items()} == {
            "slow": "connecting",
            "quick": "connected",
        }
        # Its times run as ever.
        began = trio.current_time()
        with pytest.raises(RequestTimeout):
            await group.clients["quick"].call_tool("hang", timeout=7)
        assert trio.current_time() - began == pytest.approx(7)
        await trio.sleep(LONG)
        assert set(group.clients) == {"slow", "quick"}
    assert auth.asked == 1


# --- the clock itself -------------------------------------------------------------------------------------------------


async def test_blocks_may_overlap(autojump_clock: Any) -> None:
    watch = Stopwatch()
    began = trio.current_time()
    with watch.limit(3) as limit:
        await trio.sleep(1)
        async with trio.open_nursery() as nursery:

            async def ask(after: float) -> None:
                await trio.sleep(after)
                with watch.pause():
                    await trio.sleep(10)

            nursery.start_soon(ask, 0)
            nursery.start_soon(ask, 5)
        assert watch.time() == pytest.approx(began + 1)
        await trio.sleep(60)
    assert limit.cancelled_caught
    assert trio.current_time() - began == pytest.approx(18)


async def test_a_deadline_that_has_come_has_come_on_both_clocks(autojump_clock: Any) -> None:
    watch = Stopwatch()
    for lost in (0.1, 0.3, 7.7, 1e5 / 3):
        with watch.pause():
            await trio.sleep(lost)
        for wait in (0.1, 0.7, 1.1, 1 / 3):
            with watch.limit(wait) as limit:
                await trio.sleep_forever()
            assert watch.time() >= limit.deadline
    assert math.isinf(TimeLimit(watch).deadline)
