"""The return to a better way: only when it has proved itself, and without losing a call."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing

from tests.client.failover.test_switch import BOTH, connected, scene
from tests.waiting import eventually
from trio_mcp import TransportError


@BOTH
async def test_the_better_way_is_taken_back_once_it_has_worked_for_a_while(
    mode: str, autojump_clock: trio.testing.MockClock
) -> None:
    made = scene()
    first, second = made.ways
    async with connected(made, mode, settle=10) as client:
        first.down()
        await eventually(lambda: client.transport.carrier == "b")
        first.accept()
        up = trio.current_time()
        await eventually(lambda: client.transport.carrier == "a")
        assert 10 <= trio.current_time() - up <= 10 + 5 + 1  # the wait before the next attempt, and the settling
        assert [(each.from_way, each.to_way, each.planned) for each in made.switches] == [
            ("a", "b", False),
            ("b", "a", True),
        ]
        await eventually(lambda: second.open == 0)


@BOTH
async def test_calls_in_flight_end_where_they_are(mode: str, autojump_clock: trio.testing.MockClock) -> None:
    made = scene()
    first, second = made.ways
    results: list[Any] = []
    async with connected(made, mode, settle=2) as client:
        first.down()
        await eventually(lambda: client.transport.carrier == "b")

        async def call() -> None:
            results.append((await client.call_tool("buy", {"text": "x", "wait": True})).data)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(call)
            await eventually(lambda: made.ran == ["x"])
            first.accept()
            await eventually(lambda: client.transport.carrier == "a")
            assert [way.state for way in client.transport.ways] == ["carrying", "draining"]
            assert (await client.call_tool("buy", {"text": "y"})).data == "y"
            await trio.sleep(100)
            assert [way.open for way in made.ways] == [1, 1]
            made.hold.set()
        assert results == ["x"]
        await eventually(lambda: second.open == 0)
    assert made.ran == ["x", "y"]
    assert client.transport.unknown == client.transport.repeated == 0


async def test_a_way_that_fails_again_soon_has_to_wait_longer(autojump_clock: trio.testing.MockClock) -> None:
    made = scene()
    first = made.ways[0]
    waits = []
    async with connected(made, settle=4) as client:
        for _ in range(4):
            first.cut()
            await eventually(lambda: client.transport.carrier == "b")
            lost = trio.current_time()
            await eventually(lambda: client.transport.carrier == "a")
            waits.append(trio.current_time() - lost)
    for wait, settle in zip(waits, (4, 8, 16, 32), strict=True):
        assert settle <= wait <= settle + 5.2


async def test_no_way_works(autojump_clock: trio.testing.MockClock) -> None:
    made = scene(3)
    for way in made.ways:
        way.down()
    made.ways[1].accept()
    made.ways[1].stall()
    began = trio.current_time()
    with pytest.raises(TransportError) as caught:
        async with connected(made, patience=5):
            pass
    assert 5 <= trio.current_time() - began <= 15
    text = str(caught.value)
    for part in ("patience=5 seconds", "a: a is down", "b: the link gave no response within", "c: c is down"):
        assert part in text


@pytest.mark.parametrize("fault", ["down", "stall"])
@BOTH
async def test_the_first_way_does_not_work_at_the_start(
    mode: str, fault: str, autojump_clock: trio.testing.MockClock
) -> None:
    made = scene()
    getattr(made.ways[0], fault)()
    began = trio.current_time()
    async with connected(made, mode) as client:
        assert client.transport.carrier == "b"
        assert trio.current_time() - began < 5.1
        assert (await client.call_tool("buy", {"text": "x"})).data == "x"


async def test_calls_wait_while_no_way_works(autojump_clock: trio.testing.MockClock) -> None:
    made = scene()
    async with connected(made) as client:
        for way in made.ways:
            way.down()
        await eventually(lambda: client.transport.carrier is None)
        with pytest.raises(TimeoutError):
            await client.call_tool("buy", {"text": "x"}, timeout=30)
        assert client.transport.carrier is None
        results = []

        async def call(number: int) -> None:
            results.append((await client.call_tool("buy", {"text": str(number)}, timeout=100)).data)

        async with trio.open_nursery() as nursery:
            for number in range(300):
                nursery.start_soon(call, number)
            await trio.sleep(60)
            assert results == []
            made.ways[1].accept()
        assert len(results) == 300
    assert sorted(results) == sorted(text for text in made.ran if text != "x")
    assert made.ran.count("x") <= 1


@pytest.mark.parametrize(
    "when", ["at once", "while it is checked", "while one drains", "while another proves itself", "while none works"]
)
async def test_leaving_takes_no_time(when: str, autojump_clock: trio.testing.MockClock) -> None:
    made = scene()
    first, second = made.ways
    async with connected(made, settle=3) as client:
        if when == "while it is checked":
            await trio.sleep(0.1)
            first.stall()
            await trio.sleep(7)
        elif when == "while none works":
            first.down()
            second.down()
            await eventually(lambda: client.transport.carrier is None)
        elif when != "at once":
            first.down()
            await eventually(lambda: client.transport.carrier == "b")
            async with trio.open_nursery() as nursery:
                if when == "while one drains":
                    nursery.start_soon(client.call_tool, "look", {"text": "x", "seconds": 100})
                first.accept()
                state = "draining" if when == "while one drains" else "proving"
                await eventually(lambda: state in [way.state for way in client.transport.ways])
                nursery.cancel_scope.cancel()
        left = trio.current_time()
    # A link that is stalled has a second for the last messages, and one that works leaves at once.
    assert trio.current_time() - left <= 1
    assert [way.open for way in made.ways] == [0, 0]
