"""Hearing of changes in the modern era (2026-07-28 `basic/patterns/subscriptions`)."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest
import trio

from tests.client.listening import (
    ACKNOWLEDGED,
    LEGACY,
    MODERN,
    PROMPTS,
    RESOURCES,
    TELLS_ALL,
    TOOLS,
    UPDATED,
    Listener,
    acknowledgement,
    end,
    listening,
    notice,
)
from tests.client.scripted import scripted, sent
from tests.injection import cancel_everywhere
from tests.peer import Peer, settle
from trio_mcp import (
    CallOptions,
    Client,
    LocalProtocolError,
    McpError,
    PromptsListChanged,
    RemoteProtocolError,
    RequestTimeout,
    ResourcesListChanged,
    ResourceUpdated,
    ResponseCache,
    SessionClosed,
    SessionOptions,
    ToolsListChanged,
    TransportError,
)
from trio_mcp._nursery import background_nursery
from trio_mcp.jsonrpc.messages import ErrorData, ErrorResponse, Notification, Request, Response, TransportFailure
from trio_mcp.types import meta

EVERYTHING: dict[str, Any] = {
    "tools_list_changed": True,
    "prompts_list_changed": True,
    "resources_list_changed": True,
    "resources": ["x:/a", "x:/b"],
}


def modern(replies: dict[str, Any] | None = None, **arguments: Any) -> Any:
    return scripted(replies or {}, revision=MODERN, capabilities=TELLS_ALL, **arguments)


@contextlib.asynccontextmanager
async def scene(**arguments: Any) -> AsyncIterator[tuple[Listener, Request, Peer, list[Exception]]]:
    """Yield a modern listener, its request, its server's end, and the faults that are reported."""
    faults: list[Exception] = []
    async with modern(options=SessionOptions(on_error=faults.append)) as rig, listening(*rig, **arguments) as heard:
        yield *heard, rig[2], faults


async def test_entering_waits_for_the_acknowledgement_and_events_come_typed_in_order() -> None:
    async with scene(acknowledged=False, **EVERYTHING) as (listener, request, wire, faults):
        assert listener.subscription is None
        assert sent(request) == {
            "notifications": {
                "toolsListChanged": True,
                "promptsListChanged": True,
                "resourcesListChanged": True,
                "resourceSubscriptions": ["x:/a", "x:/b"],
            }
        }
        await wire.send(acknowledgement(request))
        await settle()
        assert listener.subscription is not None
        assert listener.subscription.honored.to_wire() == sent(request)["notifications"]
        for method in (PROMPTS, TOOLS, RESOURCES):
            await wire.send(notice(method, request.id))
        for uri in ("x:/b", "x:/a"):
            await wire.send(notice(UPDATED, request.id, uri=uri))
        await settle()
        assert listener.events == [
            PromptsListChanged(),
            ToolsListChanged(),
            ResourcesListChanged(),
            ResourceUpdated("x:/b"),
            ResourceUpdated("x:/a"),
        ]
        await wire.send(Response(request.id, end(request)))
        await settle()
    assert (listener.done, listener.failure, listener.subscription.ended) == (True, None, True)
    assert (faults, wire.heard) == ([], [])  # it has ended, so there is nothing to cancel


async def test_each_subscription_gets_only_its_own_notifications() -> None:
    async with modern() as (client, asked, wire), listening(client, asked, wire, **EVERYTHING) as (one, first):
        async with listening(client, asked, wire, **EVERYTHING) as (other, second):
            assert first.id != second.id
            await wire.send(notice(TOOLS, second.id))
            await wire.send(notice(UPDATED, first.id, uri="x:/a"))
            await settle()
            assert one.events == [ResourceUpdated("x:/a")]
            assert other.events == [ToolsListChanged()]
        await wire.send(notice(TOOLS, second.id))
        await settle()
        assert one.events == [ResourceUpdated("x:/a")]


@pytest.mark.parametrize("method", [TOOLS, UPDATED, ACKNOWLEDGED])
@pytest.mark.parametrize("wrong", ["missing", "no object", True, 2.0, "2", 0, -1, 999, None, [2]])
async def test_what_does_not_name_a_subscription_is_a_fault_and_reaches_none(method: str, wrong: Any) -> None:
    faults: list[Exception] = []
    seen: list[str] = []
    async with (
        modern(
            options=SessionOptions(on_error=faults.append),
            on_message=lambda notification: seen.append(notification.method),
        ) as rig,
        listening(*rig, **EVERYTHING) as (listener, request),
    ):
        assert request.id == 2
        params: dict[str, Any] = {"uri": "x:/a", "notifications": {}}
        if wrong != "missing":
            params["_meta"] = 7 if wrong == "no object" else {meta.SUBSCRIPTION_ID: wrong}
        await rig[2].send(Notification(method, params))
        await settle()
        assert listener.events == []
        assert seen == [ACKNOWLEDGED, method]
    (fault,) = faults
    if not (method == UPDATED and wrong == "no object"):
        assert "belongs to no subscription" in str(fault)


async def test_what_was_not_asked_for_or_was_declined_is_a_fault_and_not_delivered() -> None:
    asked: dict[str, Any] = {"tools_list_changed": True, "resources": ("x:/a", "x:/b", "x:/a")}
    async with scene(acknowledged=False, **asked) as (listener, request, wire, faults):
        wanted = {"toolsListChanged": True, "resourceSubscriptions": ["x:/a", "x:/b"]}
        assert sent(request)["notifications"] == wanted  # this once, and nothing else
        await wire.send(acknowledgement(request, promptsListChanged=True, resourceSubscriptions=["x:/b", "x:/c"]))
        await settle()
        assert listener.subscription is not None
        assert listener.subscription.honored.to_wire() == {"resourceSubscriptions": ["x:/b"]}
        for method in (TOOLS, PROMPTS, RESOURCES):
            await wire.send(notice(method, request.id))
        for uri in ("x:/a", "x:/c", "x:/bb", "x:/b"):
            await wire.send(notice(UPDATED, request.id, uri=uri))
        await settle()
        assert listener.events == [ResourceUpdated("x:/b")]
    texts = [str(fault) for fault in faults]
    assert "more events than were asked for" in texts[0]
    assert ["does not cover it" in text for text in texts] == [False] + [True] * 6


async def test_before_the_acknowledgement_and_a_second_one_are_faults() -> None:
    async with scene(acknowledged=False, tools_list_changed=True) as (listener, request, wire, faults):
        await wire.send(notice(TOOLS, request.id))
        await settle()
        assert listener.subscription is None
        for _ in range(2):
            await wire.send(acknowledgement(request))
        await settle()
        assert listener.events == []
        await wire.send(notice(TOOLS, request.id))
        await settle()
        assert listener.events == [ToolsListChanged()]
    early, twice = map(str, faults)
    assert "before subscription 2 was acknowledged" in early
    assert "twice" in twice


@pytest.mark.parametrize("notifications", [None, 7, {"toolsListChanged": {}}, {"resourceSubscriptions": "x:/a"}])
async def test_a_malformed_acknowledgement_is_raised_on_entering_and_ends_the_request(notifications: Any) -> None:
    async with scene(acknowledged=False, tools_list_changed=True) as (listener, request, wire, _):
        await wire.send(notice(ACKNOWLEDGED, request.id, notifications=notifications))
        await settle()
        assert isinstance(listener.failure, RemoteProtocolError)
        assert [note.params["requestId"] for note in wire.heard] == [request.id]


async def test_a_malformed_update_is_a_fault_and_costs_only_itself() -> None:
    async with scene(**EVERYTHING) as (listener, request, wire, faults):
        await wire.send(notice(UPDATED, request.id, uri=7))
        await wire.send(notice(UPDATED, request.id))
        await wire.send(notice(UPDATED, request.id, uri="x:/a"))
        await settle()
        assert listener.events == [ResourceUpdated("x:/a")]
    assert ["malformed" in str(fault) for fault in faults] == [True, True]


async def test_a_late_acknowledgement_is_not_a_fault(autojump_clock: Any) -> None:
    faults: list[Exception] = []
    async with modern(options=SessionOptions(on_error=faults.append)) as (client, asked, wire):
        with trio.move_on_after(1):
            async with client.listen(tools_list_changed=True):
                raise AssertionError
        await wire.send(acknowledgement(asked[0]))
        await wire.send(notice(TOOLS, asked[0].id))
        await wire.send(Response(asked[0].id, end(asked[0])))
        await settle()
    assert faults == []


async def test_nothing_limits_how_long_it_lasts_and_no_alert_is_raised(
    autojump_clock: Any, caplog: pytest.LogCaptureFixture
) -> None:
    records: list[Any] = []
    calls = CallOptions(timeout=5, total_timeout=9)
    async with modern(options=SessionOptions(calls=calls, on_request=records.append, alert_threshold=1)) as rig:
        async with listening(*rig, **EVERYTHING) as (listener, request):
            await trio.sleep(80_000)
            await rig[2].send(notice(TOOLS, request.id))
            await settle()
            assert (listener.events, listener.done) == ([ToolsListChanged()], False)
        await settle()
    assert [(record.method, record.duration, record.outcome) for record in records[1:]] == [
        ("subscriptions/listen", 80_000, "cancelled")
    ]
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


async def test_leaving_cancels_the_request_at_once() -> None:
    async with modern() as (client, asked, wire):
        async with trio.open_nursery() as nursery:

            @nursery.start_soon
            async def acknowledge() -> None:
                await settle()
                await wire.send(acknowledgement(asked[0]))

            async with client.listen(tools_list_changed=True) as events:
                pass
        await settle()
        assert [(note.method, note.params) for note in wire.heard] == [
            ("notifications/cancelled", {"requestId": asked[0].id, "reason": "the client is no longer listening"})
        ]
        assert client.statistics().subscriptions == 0
        with pytest.raises(LocalProtocolError, match="has ended"):
            await anext(events)


BROKEN_ENDS: list[dict[str, Any]] = [
    *({}, {"resultType": "complete"}, {"_meta": {}}, {"_meta": 7}),
    *({"_meta": {meta.SUBSCRIPTION_ID: wrong}} for wrong in (3, "2", 2.0)),
    *({"resultType": kind, "_meta": {meta.SUBSCRIPTION_ID: 2}} for kind in ("input_required", "whatever")),
]
ENDS: list[tuple[Any, type[Exception]]] = [
    *((Response(2, broken), RemoteProtocolError) for broken in BROKEN_ENDS),
    (ErrorResponse(2, ErrorData(-32000, "shutting down")), McpError),
    (Notification("notifications/cancelled", {"requestId": 2, "reason": "shutting down"}), TransportError),
]


@pytest.mark.parametrize(("message", "error"), ENDS)
async def test_an_end_in_disorder_is_raised_by_the_loop_after_what_came_before(
    message: Any, error: type[Exception]
) -> None:
    async with modern() as rig, listening(*rig, **EVERYTHING) as (listener, request):
        assert request.id == 2
        await rig[2].send(notice(TOOLS, request.id))
        await rig[2].send(message)
        await settle()
        assert listener.events == [ToolsListChanged()]
        assert isinstance(listener.failure, error)
        assert error is RemoteProtocolError or "shutting down" in str(listener.failure)
        assert listener.subscription is not None
        assert not listener.subscription.ended


async def _fail(call: Any, call_next: Any) -> Any:
    raise ZeroDivisionError("mine")


@pytest.mark.parametrize(
    ("answer", "middleware", "error", "text", "told"),
    [
        (ErrorData(-32601, "no such thing"), [], McpError, "no such thing", None),
        ({"resultType": "complete", "_meta": {meta.SUBSCRIPTION_ID: 2}}, [], RemoteProtocolError, "had not ack", None),
        (None, [], RequestTimeout, "'subscriptions/listen' within timeout=7", "the request timed out"),
        (None, [_fail], ZeroDivisionError, "mine", None),
    ],
    ids=["refused", "ended", "not answered", "a failing middleware"],
)
async def test_what_keeps_it_from_beginning_is_raised_on_entering(
    answer: Any, middleware: list[Any], error: type[Exception], text: str, told: str | None, autojump_clock: Any
) -> None:
    async with modern({"subscriptions/listen": answer}, middleware=middleware) as (client, asked, wire):
        with pytest.raises(error, match=text):
            async with client.listen(tools_list_changed=True, timeout=7):
                raise AssertionError
        await settle()
        reasons = [(note.params["requestId"], note.params["reason"]) for note in wire.heard]
        assert reasons == ([] if told is None else [(asked[0].id, told)])
        assert client.statistics().subscriptions == 0


@pytest.mark.parametrize("revision", [MODERN, "2025-11-25"])
@pytest.mark.parametrize("how", ["closed by the server", "broken", "closed by the client"])
async def test_the_loss_of_the_link_is_raised_by_every_loop(how: str, revision: str) -> None:
    async with scripted({}, revision=revision, capabilities=TELLS_ALL) as (client, asked, wire):
        listeners = [Listener(), Listener()]
        async with trio.open_nursery() as nursery:
            for listener in listeners:
                nursery.start_soon(lambda it: it.run(client, tools_list_changed=True), listener)
            await settle()
            for request in asked:
                await wire.send(acknowledgement(request))
            if how == "closed by the server":
                await wire.close()
            elif how == "broken":
                await wire.send(TransportFailure(TransportError("the cable is cut")))
            else:
                await client.aclose()
        for listener in listeners:
            assert listener.subscription is not None
            assert not listener.subscription.ended
            assert type(listener.failure) is (TransportError if how == "broken" else SessionClosed)
        assert listeners[0].failure is not listeners[1].failure
        with pytest.raises(TransportError):
            async with client.listen(tools_list_changed=True):
                raise AssertionError
        assert client.statistics().subscriptions == 0


BAD_ARGUMENTS: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({}, ValueError, "nothing to listen for"),
    ({"tools_list_changed": False}, ValueError, "nothing to listen for"),
    ({"tools_list_changed": 1}, TypeError, "tools_list_changed must be True or False, got 1"),
    ({"resources": "x:/a"}, TypeError, "resources must be a list of URIs, got 'x:/a'"),
    ({"resources": ["x:/a", 7]}, TypeError, "a URI must be a string, got 7"),
    ({"resources": ["x:/a", ""]}, ValueError, "a URI must not be empty"),
    ({"resources": [f"x:/{number}" for number in range(1001)]}, ValueError, "1000 resources at once, got 1001"),
    ({"tools_list_changed": True, "timeout": 0}, ValueError, "timeout must be more than 0"),
]


@pytest.mark.parametrize("revision", [MODERN, "2025-11-25"])
@pytest.mark.parametrize(("arguments", "error", "text"), BAD_ARGUMENTS)
async def test_bad_arguments_are_refused_by_the_call_itself(
    arguments: dict[str, Any], error: type[Exception], text: str, revision: str
) -> None:
    async with scripted({}, revision=revision, capabilities=TELLS_ALL) as (client, asked, _):
        with pytest.raises(error, match=text):
            client.listen(**arguments)
    assert asked == []


async def test_a_client_that_is_not_connected_can_t_listen() -> None:
    with pytest.raises(LocalProtocolError, match="not connected"):
        Client(lambda: None).listen(tools_list_changed=True)  # type: ignore[arg-type, return-value]


async def test_too_many_at_once_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trio_mcp.client.subscriptions.MAX_LISTENS", 2)
    async with modern() as rig, listening(*rig, **EVERYTHING):
        async with listening(*rig, **EVERYTHING):
            with pytest.raises(LocalProtocolError, match="2 times at once"):
                async with rig[0].listen(tools_list_changed=True):
                    raise AssertionError
        async with listening(*rig, **EVERYTHING):
            pass


async def test_what_the_modern_server_declares_does_not_matter_as_it_says_what_it_honours() -> None:
    async with (
        scripted({}, revision=MODERN, capabilities={}) as rig,
        listening(*rig, tools_list_changed=True) as (listener, request),
    ):
        await rig[2].send(notice(TOOLS, request.id))
        await settle()
        assert listener.events == [ToolsListChanged()]


async def test_a_middleware_that_asks_again_keeps_the_subscription() -> None:
    async def again(call: Any, call_next: Any) -> Any:
        try:
            return await call_next()
        except McpError:
            return await call_next()

    async with modern(middleware=[again]) as rig, listening(*rig, **EVERYTHING) as (listener, first):
        _, asked, wire = rig
        await wire.send(ErrorResponse(first.id, ErrorData(-32000, "restarting")))
        await settle()
        second = asked[-1]
        assert second.id != first.id
        await wire.send(acknowledgement(second))
        await wire.send(notice(TOOLS, first.id))
        await wire.send(notice(PROMPTS, second.id))
        await settle()
        assert (listener.events, listener.done) == ([PromptsListChanged()], False)


@pytest.mark.parametrize("revision", [MODERN, "2025-11-25"])
async def test_every_notice_makes_the_client_forget_listened_for_or_not(revision: str) -> None:
    """What was learnt of the tools' output schemas goes, and the cache is told, in the order of arrival."""
    changes: list[Any] = []

    class Noting(ResponseCache):
        def changed(self, kind: str, uri: str | None) -> None:
            changes.append((kind, uri))

    tools = {"tools": [{"name": "t", "inputSchema": {"type": "object"}, "outputSchema": {"type": "object"}}]}
    async with scripted(
        {"tools/list": tools},
        revision=revision,
        capabilities=TELLS_ALL,
        options=SessionOptions(on_error=lambda _: None),
        cache=Noting(),
    ) as (client, _, wire):
        await client.list_tools()
        assert client.statistics().known_tools == 1
        await wire.send(notice(PROMPTS))
        await settle()
        assert client.statistics().known_tools == 1
        await wire.send(notice(TOOLS))
        await wire.send(notice(RESOURCES))
        await wire.send(notice(UPDATED, uri="x:/a"))
        await wire.send(notice(UPDATED))
        await settle()
        assert client.statistics().known_tools == 0
    assert changes == [("prompts", None), ("tools", None), ("resources", None), ("resources", "x:/a")]


# --- a cancellation at every step leaves no record of it, on either side ---------------------------------------------


def nothing_is_left(client: Client) -> bool:
    left = client.statistics()
    assert left.session is not None
    return not any((left.subscriptions, left.subscription_requests, left.watched_resources, left.session.outgoing))


@pytest.mark.parametrize("middleware", [False, True])
async def test_modern(middleware: bool) -> None:
    faults: list[Exception] = []

    async def through(call: Any, call_next: Any) -> Any:
        return await call_next()

    async with scripted(
        {},
        revision=MODERN,
        capabilities=TELLS_ALL,
        options=SessionOptions(on_error=faults.append),
        middleware=[through] if middleware else [],
    ) as (client, asked, wire):

        async def serve() -> None:
            known = len(asked)
            while len(asked) == known:
                await trio.lowlevel.checkpoint()
            await wire.send(acknowledgement(asked[-1]))
            await wire.send(notice(TOOLS, asked[-1].id))
            await wire.send(notice(UPDATED, asked[-1].id, uri="x:/a"))
            await wire.send(Response(asked[-1].id, end(asked[-1])))

        async def scenario() -> None:
            async with background_nursery() as nursery:
                nursery.start_soon(serve)
                async with client.listen(tools_list_changed=True, resources=["x:/a"]) as events:
                    async for _ in events:
                        pass

        async def check() -> None:
            await settle()
            assert nothing_is_left(client)

        assert await cancel_everywhere(scenario, check) >= 10
    assert faults == []


async def test_legacy() -> None:
    subscribed: set[str] = set()

    def subscribe(params: dict[str, Any]) -> dict[str, Any]:
        subscribed.add(params["uri"])
        return {}

    def unsubscribe(params: dict[str, Any]) -> dict[str, Any]:
        subscribed.discard(params["uri"])
        return {}

    answers = {"resources/subscribe": subscribe, "resources/unsubscribe": unsubscribe}
    async with scripted(answers, revision=LEGACY, capabilities=TELLS_ALL) as (client, _, wire):

        async def scenario() -> None:
            async with (
                client.listen(resources=["x:/a", "x:/b"]),
                client.listen(tools_list_changed=True, resources=["x:/b", "x:/c"]) as events,
            ):
                await wire.send(notice(UPDATED, uri="x:/c"))
                await anext(events)

        async def check() -> None:
            await settle()
            assert nothing_is_left(client)
            assert subscribed == set()

        assert await cancel_everywhere(scenario, check) >= 20
