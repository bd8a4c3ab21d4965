"""Rules of the transport contract about a connection's block: how it ends, what it leaves, how many may be open."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import trio

from trio_mcp.testing.contract.pressure import Stuck, ways
from trio_mcp.testing.contract.rule import rule
from trio_mcp.testing.contract.stage import Stage, descriptors, settled, tasks

__all__: list[str] = []

TIMES = 3
"""How many connections to open, one after the other, to see what they leave behind. An arbitrary choice."""


async def _use(stage: Stage) -> None:
    for _ in range(TIMES):
        async with stage.pair() as (client, server):
            await stage.talk(client, server)


async def _leaves_none(stage: Stage, now: Callable[[], dict[Any, str]], what: str) -> None:
    before = now()
    await _use(stage)
    if left := await stage.nothing_left(now, before):
        raise stage.broken(f"after {TIMES} connections, {len(left)} {what}: {', '.join(left[:3])}")


@rule("Leaving the block ends every task that the transport has started")
async def no_tasks(stage: Stage) -> None:
    await _leaves_none(stage, tasks, "tasks are still running")


@rule("Leaving the block closes every socket, pipe and file that the transport has opened")
async def no_descriptors(stage: Stage) -> None:
    await _leaves_none(stage, descriptors, "descriptors are still open")


@rule("Nothing is left to the garbage collector: no `ResourceWarning`")
async def no_warnings(stage: Stage) -> None:
    with stage.warned() as texts:
        await _use(stage)
    if texts:
        raise stage.broken(f"after {TIMES} connections there were {len(texts)} warnings, the first: {texts[0]}")


@rule("Leaving the block takes bounded time, even if the other end does not read what was sent")
async def leaving_stuck(stage: Stage) -> None:
    async with trio.open_nursery() as nursery:
        async with stage.pair() as ends:
            for source, _ in ways(stage, *ends):
                await Stuck(stage, source).fill(nursery)
        # This rule does not check whether the sends have ended, and one that still waits must not hang the check.
        nursery.cancel_scope.cancel()


@rule("Leaving the block wakes the tasks that wait on the link elsewhere, and closes it for good")
async def leaving_wakes(stage: Stage) -> None:
    # The tasks run in the outer nursery, which waits for them after the block has been left.
    async with trio.open_nursery() as nursery, stage.pair() as (client, server):
        for each in (client, server):
            nursery.start_soon(each.attempt, "read", "that was waiting when the block was left")
        await settled()
    for each in (client, server):
        for half in ("read", "write"):
            if await each.attempt(half, "after the block") is None:
                raise stage.broken(f"the {each.name}'s `{half}` still works after its block was left")


@rule("What the user's code raises in the block leaves it as the same object, alone")
async def exceptions(stage: Stage) -> None:
    # The transport must not rebuild a group, nor mistake an `EndOfChannel` for an end that it has seen itself.
    mine = (KeyError("mine"), ExceptionGroup("mine", [ValueError(1), KeyError(2)]), trio.EndOfChannel("mine"))
    for error in mine:
        came: BaseException | None = None
        try:
            async with stage.pair() as (client, server):
                await stage.talk(client, server)
                raise error
        except Exception as exc:
            came = exc
        if came is not error:
            result = "nothing" if came is None else repr(came)
            raise stage.broken(f"the block raised {error!r}, but the `async with` statement raised {result}")


@rule("Another connection can be opened when one has ended, whichever way it ended")
async def reopening(stage: Stage) -> None:
    # Everything is done twice, so that a connection also follows the last way of ending.
    for _ in range(2):
        async with stage.pair() as (client, server):
            await stage.talk(client, server)
        try:
            async with stage.pair() as (client, server):
                await client.send(stage.note())
                raise _Left
        # A transport that wraps exceptions breaks another rule, `exceptions`.
        except* _Left:
            pass
        with trio.CancelScope() as scope:
            async with stage.pair() as (client, server):
                await client.send(stage.note())
                scope.cancel()


class _Left(Exception):
    """An exception that stands for one raised by the user's code in the block of a connection."""


@rule("Several connections can be open at once, and their messages don't mix", unless="one_at_a_time")
async def together(stage: Stage) -> None:
    async with stage.pair() as first, stage.pair() as second, stage.pair() as third:
        for _ in range(4):
            for ends in (second, first, third):
                await stage.talk(*ends)
