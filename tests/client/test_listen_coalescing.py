"""The queue of a slow listener is bounded, and the last change always arrives."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.client.listening import (
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
    PromptsListChanged,
    ResourcesListChanged,
    ResourceUpdated,
    SessionOptions,
    Subscription,
    ToolsListChanged,
)
from trio_mcp.client.subscriptions import ChangeEvent
from trio_mcp.jsonrpc.messages import Notification

SUBSCRIBES: dict[str, Any] = {"resources/subscribe": {}, "resources/unsubscribe": {}}
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
