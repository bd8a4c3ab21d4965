"""`OAuth`: signing in, staying signed in, and asking a person no more often than needed."""

from __future__ import annotations

import contextlib
from functools import partial

import pytest
import trio
from trio.testing import MockClock

from tests.auth.engine.world import SERVER, World, together


async def test_a_person_signs_in_once_and_the_store_does_the_rest(autojump_clock: MockClock) -> None:
    world = World()
    async with world.signed_in() as signer:
        assert await world.call(signer) == 200
    async with world.signed_in():
        pass
    assert len(world.asked) == 1 and world.id.count("register") == 1


async def test_64_calls_at_expiry_refresh_once(autojump_clock: MockClock) -> None:
    world = World()
    async with world.signed_in() as signer:
        await trio.sleep(3601)
        assert await together(*[partial(world.call, signer)] * 64) == [200] * 64
    assert world.refreshes() == 1 and len(world.asked) == 1
