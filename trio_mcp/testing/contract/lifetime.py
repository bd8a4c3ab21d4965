"""Rules about the block: what it leaves behind, how it is left, and opening more than one."""

from __future__ import annotations

import trio

from trio_mcp.testing.contract.bench import Stage, descriptors, settled, tasks
from trio_mcp.testing.contract.pressure import Stuck, ways
from trio_mcp.testing.contract.rule import rule

__all__: list[str] = []

TIMES = 3
"""Connections opened, one after the other, to see what they leave behind (chosen)."""


async def _use(bench: Stage) -> None:
    for _ in range(TIMES):
        async with bench.pair() as (client, server):
            await bench.talk(client, server)


@rule("Leaving the block ends every task that the transport has started")
async def no_tasks(bench: Stage) -> None:
    before = tasks()
    await _use(bench)
    if left := await bench.nothing_left(tasks, before):
        raise bench.broken(f"after {TIMES} connections {len(left)} tasks still run: {', '.join(left[:3])}")


@rule("Leaving the block closes every socket, pipe and file that the transport has opened")
async def no_descriptors(bench: Stage) -> None:
    before = descriptors()
    await _use(bench)
    if left := await bench.nothing_left(descriptors, before):
        raise bench.broken(f"after {TIMES} connections {len(left)} descriptors are still open: {', '.join(left[:3])}")


@rule("Nothing is left to the garbage collector: no `ResourceWarning`")
async def no_warnings(bench: Stage) -> None:
    with bench.warned() as texts:
        await _use(bench)
    if texts:
        raise bench.broken(f"after {TIMES} connections there were {len(texts)} warnings, such as: {texts[0]}")


@rule("Leaving the block takes bounded time, even if the other end does not read what was sent")
async def leaving_stuck(bench: Stage) -> None:
    async with trio.open_nursery() as nursery:
        async with bench.pair() as ends:
            for source, _ in ways(bench, *ends):
                await Stuck(bench, source).fill(nursery)
        # Whether the sends have ended is not asked here; one that still waits must not hang this rule.
        nursery.cancel_scope.cancel()


@rule("Leaving the block wakes the tasks that wait on the link elsewhere, and closes it for good")
async def leaving_wakes(bench: Stage) -> None:
    # The tasks are in the outer nursery, which waits for them after the block was left.
    async with trio.open_nursery() as nursery, bench.pair() as (client, server):
        for each in (client, server):
            nursery.start_soon(each.attempt, "read", "whose block was left")
        await settled()
    for each in (client, server):
        for half in ("read", "write"):
            if await each.attempt(half, "after the block") is None:
                raise bench.broken(f"the {each.name}'s `{half}` still works after its block was left")


@rule("What the user's code raises in the block leaves it as the same object, alone")
async def exceptions(bench: Stage) -> None:
    # A group must not be rebuilt, nor may `EndOfChannel` pass for an end that the transport itself has seen.
    mine = (KeyError("mine"), ExceptionGroup("mine", [ValueError(1), KeyError(2)]), trio.EndOfChannel("mine"))
    for error in mine:
        came: BaseException | None = None
        try:
            async with bench.pair() as (client, server):
                await bench.talk(client, server)
                raise error
        except Exception as exc:
            came = exc
        if came is not error:
            raise bench.broken(f"the block raised {error!r}, and {came!r} came out")


@rule("Another connection can be opened when one has ended, whichever way it ended")
async def reopening(bench: Stage) -> None:
    # Twice, so that a connection follows on the last way of ending, too.
    for _ in range(2):
        async with bench.pair() as (client, server):
            await bench.talk(client, server)
        try:
            async with bench.pair() as (client, server):
                await client.send(bench.note())
                raise _Left
        # A transport that wraps exceptions breaks another rule, `exceptions`.
        except* _Left:
            pass
        with trio.CancelScope() as scope:
            async with bench.pair() as (client, server):
                await client.send(bench.note())
                scope.cancel()


class _Left(Exception):
    """What a user's code may raise in the block."""


@rule("Several connections can be open at once, and their messages don't mix", unless="one_at_a_time")
async def together(bench: Stage) -> None:
    async with bench.pair() as first, bench.pair() as second, bench.pair() as third:
        for _ in range(4):
            for ends in (second, first, third):
                await bench.talk(*ends)
