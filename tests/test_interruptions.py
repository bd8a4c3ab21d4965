"""Ctrl-C at every step of what a program does with this package: it leaves, as itself, whatever is cancelled."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
import trio

from tests.interruptions import SCENARIOS, Press, interrupt, interrupted
from tests.trio_start import interrupted_and_cancelled
from trio_mcp._nursery import background_nursery, start


class Oops(Exception):
    pass


@pytest.mark.again
@pytest.mark.parametrize("name", SCENARIOS)
def test_ctrl_c_at_every_step_leaves_as_itself(name: str, caplog: pytest.LogCaptureFixture) -> None:
    """Without a cancellation of the surrounding scope or with one in the same step; every other time one step off.

    `.ci/long interruptions` tries any two steps.
    """
    caplog.set_level("CRITICAL")  # calls that are cut off are logged
    scenario, steps = SCENARIOS[name]
    through = 0
    for step in range(1, steps):
        for cancel in (0, step) if step % 2 else (step - 1, step + 1):
            through += not interrupted(Press(step, cancel), scenario)
    assert through > 0  # so these are all its steps


def test_trio_itself_makes_an_internal_error_of_it() -> None:
    with pytest.RaisesGroup(pytest.RaisesExc(trio.TrioInternalError, match="Internal nursery"), flatten_subgroups=True):
        trio.run(interrupted_and_cancelled)


# --- `start`, which avoids that ---------------------------------------------------------------------------------------


def in_main(scenario: Callable[[trio.Nursery], Awaitable[object]]) -> None:
    async def main() -> None:
        async with background_nursery() as nursery:
            await scenario(nursery)

    trio.run(main)


@pytest.mark.parametrize("fails", [False, True])
def test_ctrl_c_while_a_task_starts_and_is_cancelled(fails: bool) -> None:
    ended: list[str] = []

    async def starting(task_status: trio.TaskStatus[None]) -> None:
        interrupt()
        try:
            with trio.CancelScope(shield=True):
                await trio.testing.wait_all_tasks_blocked()
            scope.cancel()
            await trio.sleep_forever()
        finally:
            ended.append("ended")
            if fails:
                raise Oops

    scope = trio.CancelScope()

    async def scenario(nursery: trio.Nursery) -> None:
        with scope:
            await start(nursery, starting)

    with pytest.raises(KeyboardInterrupt) as caught:
        in_main(scenario)
    assert ended == ["ended"]
    if fails:
        assert isinstance(caught.value.__cause__, BaseExceptionGroup)
        assert caught.value.__cause__.subgroup(Oops) is not None


async def test_a_start_gives_the_value_and_leaves_the_task_to_the_nursery() -> None:
    async def starting(task_status: trio.TaskStatus[int]) -> None:
        task_status.started(7)
        await trio.sleep_forever()

    async with background_nursery() as nursery:
        assert await start(nursery, starting) == 7
        assert len(nursery.child_tasks) == 1


async def test_a_start_that_fails_raises_what_the_task_raised_and_spares_the_nursery() -> None:
    error = Oops()

    async def starting(task_status: trio.TaskStatus[None]) -> None:
        raise error

    async with background_nursery() as nursery:
        with pytest.raises(Oops) as caught:
            await start(nursery, starting)
        assert caught.value is error
        assert not nursery.cancel_scope.cancel_called


async def test_a_cancelled_start_waits_for_the_end_of_the_task() -> None:
    ended = False

    async def starting(task_status: trio.TaskStatus[None]) -> None:
        nonlocal ended
        try:
            scope.cancel()
            await trio.sleep_forever()
        finally:
            ended = True

    async with background_nursery() as nursery:
        with trio.CancelScope() as scope:
            await start(nursery, starting)
        assert scope.cancelled_caught
        assert ended
