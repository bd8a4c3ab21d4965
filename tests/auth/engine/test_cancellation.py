"""A cancellation at every step of signing in, refreshing and stepping up leaves login, store and lock whole."""

from __future__ import annotations

import contextlib

import trio
from trio.testing import MockClock

from tests.auth.engine.world import SERVER, World
from tests.injection import cancel_everywhere
from trio_mcp.auth.shared_work import Flight


async def test_a_cancellation_at_every_step_leaves_a_login_that_goes_on(autojump_clock: MockClock) -> None:
    world = World()

    async def scenario() -> None:
        async with world.oauth().opened(SERVER, contextlib.nullcontext) as signer:
            assert await world.call(signer) == 200
            world.id.issued.expire()
            assert await world.call(signer) == 200
            assert await world.call(signer, ["write"]) == 200

    async def check() -> None:
        await world.check()
        async with world.oauth().opened(SERVER, contextlib.nullcontext) as signer:
            with trio.fail_after(100):
                assert await world.call(signer) == 200
            asked = len(world.asked)
            world.id.issued.expire()
            assert await world.call(signer) == 200
            assert len(world.asked) == asked
        await world.check()
        # As it was, for the next time.
        world.id.issued.revoke_all()
        world.needs = ["read"]
        await world.store.save(SERVER, None)

    places = await cancel_everywhere(scenario, check)
    assert places > 50


async def test_a_flight_that_is_left_as_it_is_about_to_ask_is_given_up(autojump_clock: MockClock) -> None:
    """Who comes then has to start another one, in whichever order the tasks run."""
    for _ in range(10):  # their order is random
        flight, go = Flight(), trio.Event()

        async def work(flight: Flight, go: trio.Event = go) -> None:
            await go.wait()
            flight.hold()
            await trio.sleep(1)
            flight.fresh = True

        flight.start(work, lambda: None)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(flight.wait)
            await trio.testing.wait_all_tasks_blocked()
            go.set()
            nursery.cancel_scope.cancel()
        given_up = flight.abandoned
        await flight.ended.wait()
        assert given_up != flight.fresh
