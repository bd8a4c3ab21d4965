"""Hearing of changes in the legacy era, and how many changes wait for a slow listener in either era."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import pytest
import trio
from hypothesis import given, settings, strategies as st

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
    notice,
)
from tests.client.scripted import scripted
from tests.effort import examples
from tests.peer import settle
from trio_mcp import (
    CapabilityError,
    LocalProtocolError,
    McpError,
    PromptsListChanged,
    RequestTimeout,
    ResourcesListChanged,
    ResourceUpdated,
    SessionOptions,
    Subscription,
    ToolsListChanged,
)
from trio_mcp.client.listen import UNSUBSCRIBE_TIMEOUT
from trio_mcp.client.subscriptions import ChangeEvent
from trio_mcp.jsonrpc.messages import ErrorData, Notification, Response

REVISIONS = ["2024-11-05", LEGACY]
SUBSCRIBES: dict[str, Any] = {"resources/subscribe": {}, "resources/unsubscribe": {}}


def legacy(replies: dict[str, Any] | None = None, **arguments: Any) -> Any:
    arguments.setdefault("capabilities", TELLS_ALL)
    return scripted(SUBSCRIBES if replies is None else replies, **arguments)


def asked_for(asked: list[Any]) -> list[tuple[str, str]]:
    return [(request.method.removeprefix("resources/"), request.params["uri"]) for request in asked]


@pytest.mark.parametrize("revision", REVISIONS)
async def test_the_same_face_as_in_the_modern_era(revision: str) -> None:
    async with legacy(revision=revision) as (client, asked, wire):
        async with client.listen(tools_list_changed=True, resources=["x:/a", "x:/b"]) as events:
            assert asked_for(asked) == [("subscribe", "x:/a"), ("subscribe", "x:/b")]
            assert events.honored.to_wire() == {"toolsListChanged": True, "resourceSubscriptions": ["x:/a", "x:/b"]}
            for message in (notice(PROMPTS), notice(UPDATED, uri="x:/b"), notice(RESOURCES), notice(TOOLS)):
                await wire.send(message)
            assert [await anext(events), await anext(events)] == [ResourceUpdated("x:/b"), ToolsListChanged()]
        await settle()
        assert sorted(asked_for(asked)[2:]) == [("unsubscribe", "x:/a"), ("unsubscribe", "x:/b")]
        left = client.statistics()
        assert (left.subscriptions, left.watched_resources) == (0, 0)


async def test_only_what_the_server_declares_is_honoured() -> None:
    declared: dict[str, Any] = {"tools": {}, "prompts": {"listChanged": True}, "resources": {"listChanged": False}}
    arguments: dict[str, Any] = {
        "tools_list_changed": True,
        "prompts_list_changed": True,
        "resources_list_changed": True,
        "resources": ["x:/a"],
    }
    faults: list[Exception] = []
    async with (
        legacy({}, capabilities=declared, options=SessionOptions(on_error=faults.append)) as (client, asked, wire),
        client.listen(**arguments) as events,
    ):
        assert events.honored.to_wire() == {"promptsListChanged": True}
        for message in (notice(TOOLS), notice(RESOURCES), notice(UPDATED, uri="x:/a"), notice(PROMPTS)):
            await wire.send(message)
        assert await anext(events) == PromptsListChanged()
        await settle()
        assert events.waiting == 0
        assert asked == []
    assert faults == []


@pytest.mark.parametrize(
    ("arguments", "capability"),
    [
        ({"tools_list_changed": True}, "tools.listChanged"),
        ({"prompts_list_changed": True, "resources": ["x:/a"]}, "prompts.listChanged"),
        ({"resources_list_changed": True}, "resources.listChanged"),
        ({"resources": ["x:/a"]}, "resources.subscribe"),
    ],
)
async def test_where_nothing_can_be_honoured_the_call_says_so(arguments: dict[str, Any], capability: str) -> None:
    declared: dict[str, Any] = {"tools": {}, "prompts": {}, "resources": {"subscribe": False}}
    async with legacy(capabilities=declared) as (client, asked, _):
        with pytest.raises(CapabilityError) as caught:
            client.listen(**arguments)
        assert (caught.value.method, caught.value.capability) == ("Client.listen", capability)
    assert asked == []


async def test_the_first_subscribes_and_the_last_unsubscribes() -> None:
    async with legacy() as (client, asked, wire):
        async with client.listen(resources=["x:/a", "x:/b"]) as one:
            async with client.listen(resources=["x:/b", "x:/c"]) as other:
                await wire.send(notice(UPDATED, uri="x:/b"))
                await wire.send(notice(UPDATED, uri="x:/c"))
                assert await anext(one) == ResourceUpdated("x:/b")
                assert [await anext(other), await anext(other)] == [ResourceUpdated("x:/b"), ResourceUpdated("x:/c")]
            await settle()
            assert asked_for(asked) == [
                ("subscribe", "x:/a"),
                ("subscribe", "x:/b"),
                ("subscribe", "x:/c"),
                ("unsubscribe", "x:/c"),
            ]
            assert one.waiting == 0
        await settle()
        assert sorted(asked_for(asked)[4:]) == [("unsubscribe", "x:/a"), ("unsubscribe", "x:/b")]


async def test_two_that_enter_at_once_subscribe_once() -> None:
    async with legacy({"resources/unsubscribe": {}}) as (client, asked, wire), trio.open_nursery() as nursery:
        listeners = [Listener(), Listener()]
        for listener in listeners:
            nursery.start_soon(lambda it: it.run(client, resources=["x:/a"]), listener)
        await settle()
        (request,) = asked
        assert [listener.subscription for listener in listeners] == [None, None]
        await wire.send(Response(request.id, {}))
        await settle()
        assert None not in [listener.subscription for listener in listeners]
        assert len(asked) == 1
        nursery.cancel_scope.cancel()


async def test_a_refused_resource_is_raised_and_those_before_it_are_given_back() -> None:
    def answer(params: dict[str, Any]) -> Any:
        return ErrorData(-32002, "not found") if params["uri"] == "x:/no" else {}

    async with legacy({"resources/subscribe": answer, "resources/unsubscribe": {}}) as (client, asked, _):
        with pytest.raises(McpError, match="not found"):
            async with client.listen(resources=["x:/a", "x:/no", "x:/b"]):
                raise AssertionError
        await settle()
        assert asked_for(asked) == [("subscribe", "x:/a"), ("subscribe", "x:/no"), ("unsubscribe", "x:/a")]
        left = client.statistics()
        assert (left.subscriptions, left.watched_resources) == (0, 0)


async def test_a_subscription_given_up_is_given_back_as_it_may_have_been_carried_out(autojump_clock: Any) -> None:
    async with legacy({"resources/unsubscribe": {}}) as (client, asked, wire):
        with pytest.raises(RequestTimeout) as caught:
            async with client.listen(resources=["x:/a"], timeout=4):
                raise AssertionError
        assert (caught.value.method, caught.value.seconds, trio.current_time()) == ("resources/subscribe", 4, 4)
        await settle()
        assert asked_for(asked) == [("subscribe", "x:/a"), ("unsubscribe", "x:/a")]
        assert [note.params["requestId"] for note in wire.heard[1:]] == [asked[0].id]
        assert client.statistics().watched_resources == 0


async def test_leaving_waits_for_no_answer_but_listening_again_does(autojump_clock: Any) -> None:
    """An unsubscription on its way could take back what a new one gives."""
    async with legacy({"resources/subscribe": {}}) as (client, asked, _):
        async with client.listen(resources=["x:/a"]):
            pass
        assert trio.current_time() == 0
        await settle()
        assert asked_for(asked) == [("subscribe", "x:/a"), ("unsubscribe", "x:/a")]
        with pytest.raises(RequestTimeout):
            async with client.listen(resources=["x:/a"], timeout=1):
                raise AssertionError
        async with client.listen(resources=["x:/a"], timeout=60):
            assert trio.current_time() == UNSUBSCRIBE_TIMEOUT
            assert asked_for(asked)[2:] == [("subscribe", "x:/a")]


async def test_a_lost_link_gets_no_unsubscription() -> None:
    async with legacy() as (client, asked, wire), trio.open_nursery() as nursery:
        listener = Listener()
        nursery.start_soon(lambda: listener.run(client, resources=["x:/a"]))
        await settle()
        await wire.close()
        await settle()
        assert listener.done
        assert asked_for(asked) == [("subscribe", "x:/a")]
        assert client.statistics().watched_resources == 0


async def test_a_refused_unsubscription_is_ignored(caplog: pytest.LogCaptureFixture) -> None:
    refused = {"resources/subscribe": {}, "resources/unsubscribe": ErrorData(-32603, "no")}
    async with legacy(refused) as (client, asked, _):
        for _ in range(2):
            async with client.listen(resources=["x:/a"]):
                pass
            await settle()
        assert [method for method, _ in asked_for(asked)] == ["subscribe", "unsubscribe"] * 2
    assert [record for record in caplog.records if record.levelname != "INFO"] == []


async def test_too_many_resources_of_all_listeners_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trio_mcp.client.listen.MAX_URIS", 3)
    async with legacy() as (client, asked, _):
        async with client.listen(resources=["x:/a", "x:/b"]):
            with pytest.raises(LocalProtocolError, match="can't add 'x:/d'"):
                async with client.listen(resources=["x:/b", "x:/c", "x:/d"]):
                    raise AssertionError
            async with client.listen(resources=["x:/b", "x:/a"]):
                pass
            await settle()
            assert asked_for(asked)[-1] == ("unsubscribe", "x:/c")
        await settle()
        async with client.listen(resources=["x:/1", "x:/2", "x:/3"]):
            pass


async def test_notifications_without_a_listener_are_not_faults() -> None:
    """The application may have subscribed by itself; and the modern acknowledgement means nothing here."""
    faults: list[Exception] = []
    async with (
        legacy(options=SessionOptions(on_error=faults.append)) as (client, _, wire),
        client.listen(resources=["x:/a"]) as events,
    ):
        for message in (notice(UPDATED, uri="x:/z"), notice(TOOLS), notice(ACKNOWLEDGED, 1, notifications={})):
            await wire.send(message)
        await wire.send(notice(UPDATED, uri="x:/a"))
        assert await anext(events) == ResourceUpdated("x:/a")
        assert events.waiting == 0
    assert faults == []


# --- the queue of a slow listener, in both eras ----------------------------------------------------------------------


URIS = ["x:/a", "x:/b", "x:/a/below", "x:/c"]
EVENTS: list[tuple[ChangeEvent, str, str | None]] = [
    (ToolsListChanged(), TOOLS, None),
    (PromptsListChanged(), PROMPTS, None),
    (ResourcesListChanged(), RESOURCES, None),
    *((ResourceUpdated(uri), UPDATED, uri) for uri in URIS),
]

steps = st.lists(st.integers(0, len(EVENTS) - 1) | st.just("take") | st.just("settle"), max_size=40)


@contextlib.asynccontextmanager
async def slow_listener(revision: str, **wanted: Any) -> AsyncIterator[tuple[Subscription, Any, list[Exception]]]:
    """Yield a subscription, what sends it a notice, and the faults that are reported."""
    faults: list[Exception] = []
    options = SessionOptions(on_error=faults.append)
    async with (
        scripted(SUBSCRIBES, revision=revision, capabilities=TELLS_ALL, options=options) as (client, requests, wire),
        trio.open_nursery() as nursery,
    ):

        async def acknowledge() -> None:
            await settle()
            await wire.send(acknowledgement(requests[-1]))

        async def tell(method: str, **params: Any) -> None:
            await wire.send(notice(method, requests[-1].id if revision == MODERN else None, **params))

        if revision == MODERN:
            nursery.start_soon(acknowledge)
        async with client.listen(**wanted) as events:
            yield events, tell, faults


@pytest.mark.parametrize("revision", [MODERN, LEGACY])
@settings(max_examples=examples(60))
@given(
    flags=st.tuples(st.booleans(), st.booleans(), st.booleans()), asked=st.sets(st.sampled_from(URIS[:3])), steps=steps
)
async def test_a_listener_of_any_speed_sees_the_last_change_of_each_and_nothing_else(
    revision: str, flags: tuple[bool, bool, bool], asked: set[str], steps: list[Any]
) -> None:
    """A listener that rereads whatever an event names ends up up to date; it hears of nothing else."""
    if not (any(flags) or asked):
        return
    names = ("tools_list_changed", "prompts_list_changed", "resources_list_changed")
    wanted: set[ChangeEvent] = {event for (event, *_), flag in zip(EVENTS, flags, strict=False) if flag}
    wanted |= {ResourceUpdated(uri) for uri in URIS if uri in asked or (uri == "x:/a/below" and "x:/a" in asked)}
    versions: Counter[ChangeEvent] = Counter()
    read: Counter[ChangeEvent] = Counter()
    told: Counter[ChangeEvent] = Counter()
    wishes = dict(zip(names, flags, strict=True))
    async with slow_listener(revision, **wishes, resources=sorted(asked)) as (events, tell, _):

        async def take() -> None:
            event = await anext(events)
            told[event] += 1
            read[event] = versions[event]

        for step in steps:
            if step == "settle":
                await settle()
            elif step == "take":
                if events.waiting:
                    await take()
            else:
                event, method, uri = EVENTS[step]
                versions[event] += 1
                await tell(method, **({} if uri is None else {"uri": uri}))
        await settle()
        assert events.waiting <= len(EVENTS)
        while events.waiting:
            await take()
        assert set(told) <= wanted
        for event in wanted:
            assert read[event] == versions[event]
            assert told[event] <= versions[event]


async def test_events_wait_in_the_order_of_their_first_occurrence() -> None:
    async with (
        scripted(SUBSCRIBES, capabilities=TELLS_ALL) as (client, _, wire),
        client.listen(tools_list_changed=True, resources=["x:/a", "x:/b"]) as events,
    ):
        for message in (
            notice(UPDATED, uri="x:/b"),
            notice(TOOLS),
            notice(UPDATED, uri="x:/b"),
            notice(UPDATED, uri="x:/a"),
            notice(TOOLS),
        ):
            await wire.send(message)
        await settle()
        taken = [await anext(events), await anext(events)]
        await wire.send(notice(UPDATED, uri="x:/b"))
        await settle()
        taken += [await anext(events), await anext(events)]
        assert events.waiting == 0
    assert taken == [ResourceUpdated("x:/b"), ToolsListChanged(), ResourceUpdated("x:/a"), ResourceUpdated("x:/b")]


async def test_a_listener_that_reads_nothing_holds_up_no_other() -> None:
    """More notices than any queue holds: calls are answered, and another listener hears of them."""
    async with (
        scripted({"tools/list": {"tools": []}}, capabilities=TELLS_ALL) as (client, _, wire),
        client.listen(tools_list_changed=True) as idle,
        trio.open_nursery() as nursery,
    ):
        busy = Listener()
        nursery.start_soon(lambda: busy.run(client, tools_list_changed=True))
        await settle()
        for _ in range(3000):
            await wire.send(notice(TOOLS))
        assert (await client.list_tools()).tools == []
        await settle()
        assert len(busy.events) >= 1
        assert idle.waiting == 1
        nursery.cancel_scope.cancel()


BELOW = [
    ("x:/a", "x:/a/b", True),
    ("x:/a", "x:/a?b", True),
    ("x:/a", "x:/a#b", True),
    ("x:/a/", "x:/a/b", True),
    ("x:/a", "x:/a", True),
    ("x:/a", "x:/ab", False),
    ("x:/a", "x:/", False),
    ("x:/a/", "x:/a", False),
    ("x:/a", "X:/a", False),
    ("x:/a", "", False),
]


@pytest.mark.parametrize(("asked", "told", "heard"), BELOW)
@pytest.mark.parametrize("revision", [MODERN, LEGACY])
async def test_a_resource_below_one_that_was_asked_for_is_told_as_itself(
    revision: str, asked: str, told: str, heard: bool
) -> None:
    """In the modern era, where a notice names its subscription, one that it does not cover is a fault."""
    events, faults = await told_to_one_who_asked_for([asked], [told], revision)
    assert events == ([told] if heard else [])
    assert len(faults) == (0 if heard or revision == LEGACY else 1)


async def test_without_end_below_is_told_as_the_nearest_that_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server can't fill our memory with names that it makes up, and no change is lost."""
    monkeypatch.setattr("trio_mcp.client.subscriptions.MAX_PENDING", 3)
    told = [f"x:/{where}/{number}" for number in range(100) for where in "ab"]
    events, faults = await told_to_one_who_asked_for(["x:/", "x:/a"], told)
    assert sorted(events) == ["x:/", "x:/a", "x:/a/0", "x:/a/1", "x:/b/0"]
    assert faults == []


async def test_a_name_of_any_length_is_told_as_the_one_that_was_asked_for() -> None:
    assert await told_to_one_who_asked_for(["x:/a"], ["x:/a/" + "b" * 8193]) == (["x:/a"], [])


async def told_to_one_who_asked_for(
    asked: list[str], told: list[str], revision: str = MODERN
) -> tuple[list[str], list[Exception]]:
    """Return what a listener hears that reads only once all of it has arrived, and the faults reported."""
    async with slow_listener(revision, resources=asked) as (events, tell, faults):
        for uri in told:
            await tell(UPDATED, uri=uri)
        await settle()
        heard = [await anext(events) for _ in range(events.waiting)]
    return [event.uri for event in heard if isinstance(event, ResourceUpdated)], faults


async def test_a_cancelled_wait_loses_nothing() -> None:
    async with (
        scripted({}, capabilities=TELLS_ALL) as (client, _, wire),
        client.listen(tools_list_changed=True) as events,
    ):
        for before in (True, False):
            with trio.CancelScope() as scope:
                if before:
                    await wire.send(Notification(TOOLS))
                    await settle()
                scope.cancel()
                await anext(events)
            assert scope.cancelled_caught
        assert await anext(events) == ToolsListChanged()
