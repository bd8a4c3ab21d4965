"""Rules about cancellation, at every step of each operation."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from types import TracebackType
from typing import Any, TypeVar

import trio

from trio_mcp.jsonrpc.messages import Incoming, SessionMessage
from trio_mcp.link import Link
from trio_mcp.testing.contract.bench import End, Stage, descriptors, number_of, settled, tasks
from trio_mcp.testing.contract.pressure import Stuck, ways
from trio_mcp.testing.contract.rule import rule

__all__: list[str] = []

T = TypeVar("T")

SOME = 8
"""Messages that are sent, or received, while there is a cancellation (chosen)."""


class _Steps(trio.abc.Instrument):
    """Counts the steps of all tasks while it is on, and cancels a scope after one of them.

    Attributes:
        last: The number of that step, 0 for before the first; None to cancel nothing.
        scope: The scope.
        count: The steps that there were.
    """

    def __init__(self, last: int | None = None) -> None:
        self.last = last
        self.scope = trio.CancelScope()
        self.count = 0
        self._is_on = False

    def on(self) -> None:
        """Begin."""
        trio.lowlevel.add_instrument(self)
        self._is_on = True
        # `after_task_step` would be too late for a cancellation before the first step.
        self._look()

    def off(self) -> None:
        """End; do nothing if it has not begun."""
        if self._is_on:
            self._is_on = False
            trio.lowlevel.remove_instrument(self)

    @contextlib.contextmanager
    def cancelling(self) -> Iterator[None]:
        """Count the steps of a block, and cancel it."""
        with self.scope:
            self.on()
            try:
                yield
            finally:
                self.off()

    # The steps of all tasks: it matters how far the transport's own have come when the cancellation strikes.
    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        self.count += 1
        self._look()

    def _look(self) -> None:
        if self.count == self.last:
            self.scope.cancel("cancelled by check_transport")

    def __str__(self) -> str:
        return "without a cancellation" if self.last is None else f"cancelled after {self.last} steps"


async def _everywhere(bench: Stage, scenario: Callable[[_Steps], Awaitable[None]]) -> None:
    """Run a scenario, and again with a cancellation at each of its steps, or at as many as are asked for."""
    await scenario(whole := _Steps())
    # A few more than were counted: Trio shuffles its tasks, so the next run may take longer.
    total = whole.count + 3
    # Spread over all of it: the last steps, in which things are closed, matter as much as the first.
    for n in range(places := min(total, bench.places)):
        await scenario(_Steps(n * total // places))


# --- the block --------------------------------------------------------------------------------------------------------


@rule("Opening that is cancelled, at any step, leaves nothing running, and the next connection opens")
async def cancel_open(bench: Stage) -> None:
    async def scenario(steps: _Steps) -> None:
        with steps.scope:
            steps.on()
            try:
                async with bench.pair():
                    # Before anything happens in the block, which is not what this rule is about.
                    steps.off()
            finally:
                steps.off()

    await _leaves_nothing(bench, scenario)


@rule("Leaving that is cancelled, at any step, leaves nothing running, and the next connection opens")
async def cancel_leave(bench: Stage) -> None:
    async def scenario(steps: _Steps) -> None:
        with steps.scope:
            try:
                async with bench.pair() as (client, server):
                    await bench.talk(client, server)
                    # Not taken by the other end, so that leaving finds a message on its way.
                    await client.send(bench.note())
                    steps.on()
            finally:
                steps.off()

    await _leaves_nothing(bench, scenario)


async def _leaves_nothing(bench: Stage, scenario: Callable[[_Steps], Awaitable[None]]) -> None:
    before = [(now, now()) for now in (tasks, descriptors)]
    await scenario(_Steps())
    # What is left even without a cancellation breaks a rule of its own.
    watched = [(now, at_first) for now, at_first in before if not await bench.nothing_left(now, at_first)]

    async def watching(steps: _Steps) -> None:
        await scenario(steps)
        for now, at_first in watched:
            if left := await bench.nothing_left(now, at_first):
                raise bench.broken(f"{steps}, it left {', '.join(left[:3])}")

    await _everywhere(bench, watching)
    async with bench.pair() as (client, server):
        await bench.talk(client, server)


@rule("A cancellation is not swallowed: it gets out of opening, of the block, and of a receive that waits")
async def cancellation(bench: Stage) -> None:
    went_on = []
    with trio.CancelScope() as scope:
        scope.cancel()
        async with bench.pair():
            went_on.append("the block of a connection that was cancelled before it was opened")
    with trio.CancelScope() as scope:
        async with bench.pair():
            scope.cancel()
            await trio.sleep_forever()
        went_on.append("what follows a block that was cancelled")
    async with bench.pair() as ends:
        for each in ends:
            # The outer bound is for a receive that swallows its cancellation and goes on waiting.
            with trio.move_on_after(bench.timeout), trio.CancelScope() as scope:
                async with trio.open_nursery() as nursery:

                    @nursery.start_soon
                    async def cancel(scope: trio.CancelScope = scope) -> None:
                        # Only once the receive waits: earlier, the cancellation would strike at a checkpoint on the way
                        # there.
                        await settled()
                        scope.cancel()

                    await each.link.read.receive()
                    went_on.append(f"a receive of the {each.name}'s that was cancelled")
    if went_on:
        raise bench.broken(f"{went_on[0]} went on as if nothing had happened")


@rule(
    "Opening, sending, receiving, closing and leaving are checkpoints: other tasks run, and a cancellation is noticed"
)
async def checkpoints(bench: Stage) -> None:
    from trio.testing import assert_checkpoints  # deferred: trio.testing imports pytest where it is installed

    without: list[str] = []

    async def check(what: str, operation: Awaitable[T]) -> T:
        done: list[T] = []
        try:
            with assert_checkpoints():
                done.append(await operation)
        # If the operation has not returned, the error is the transport's own, and not a missing checkpoint.
        except AssertionError:
            if not done:
                raise
            without.append(what)
        return done[0]

    with bench.within("opening, sending, receiving, closing and leaving"):
        async with _Leaving(bench.bare(), check) as (client, server):
            ends = {"client": client, "server": server}
            for name, other in (("client", "server"), ("server", "client")):
                await check(f"the {name}'s send", ends[name].write.send(_message(bench)))
                await check(f"the {other}'s receive", ends[other].read.receive())
                # There the server may not begin, so its send would wait for a request that never comes.
                if "calls_only" in bench.traits:
                    break
            for half in (client.write, client.read, server.write, server.read):
                await check("a close", half.aclose())
    if without:
        raise bench.broken(f"no checkpoint: {', '.join(without)}")


# `async with` has no place between opening and its block where a check of the opening could end.
class _Leaving(contextlib.AbstractAsyncContextManager[tuple[Link, Link]]):
    """A block whose opening and leaving are checked."""

    def __init__(self, manager: contextlib.AbstractAsyncContextManager[tuple[Link, Link]], check: Any) -> None:
        self._manager = manager
        self._check = check

    async def __aenter__(self) -> tuple[Link, Link]:
        links: tuple[Link, Link] = await self._check("opening", self._manager.__aenter__())
        return links

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        suppressed: bool | None = await self._check("leaving", self._manager.__aexit__(kind, exc, traceback))
        return suppressed


# --- the operations ---------------------------------------------------------------------------------------------------


@rule("A send that is cancelled, at any step, has sent nothing; one that returns has; the link goes on")
async def cancel_send(bench: Stage) -> None:
    async with bench.pair() as ends:
        for source, target in ways(bench, *ends):

            async def scenario(steps: _Steps, source: End = source, target: End = target) -> None:
                sent: list[Incoming] = []
                async with _checking(bench, source, target, sent, str(steps)):
                    with bench.within(f"{SOME} sends"), steps.cancelling():
                        for _ in range(SOME):
                            await source.link.write.send(SessionMessage(message := bench.note()))
                            # Only after its send: one that raises `Cancelled` must not have sent anything.
                            sent.append(message)

            await _everywhere(bench, scenario)
            async with trio.open_nursery() as nursery:
                waits = await (stuck := Stuck(bench, source)).fill(nursery)
                nursery.cancel_scope.cancel()
                await stuck.gives_up(target)
            if waits:
                async with _checking(bench, source, target, stuck.sent, "cancelled while it waited for the reader"):
                    pass


@contextlib.asynccontextmanager
async def _checking(bench: Stage, source: End, target: End, sent: list[Incoming], when: str) -> AsyncIterator[None]:
    """Read all the while, and check that exactly what was sent arrives."""
    last = bench.note()
    arrived: list[Incoming] = []
    async with trio.open_nursery() as nursery:

        @nursery.start_soon
        async def read() -> None:
            # Where messages overtake each other, the last one need not come last.
            while len(arrived) <= len(sent) or last not in arrived:
                if not (taken := await target.collect(1)):
                    break
                arrived.extend(taken)

        yield
        await source.send(last)
    due, came = ([number_of(each) for each in some] for some in ([*sent, last], arrived))
    if lost := [number for number in due if number not in came]:
        raise bench.broken(f"a send of the {source.name}'s, {when}: {len(lost)} of {len(due)} messages were lost")
    if len(came) > len(due):
        raise bench.broken(f"a send of the {source.name}'s, {when}: a message arrived though its send was cancelled")


@rule("A receive that is cancelled, at any step, loses nothing; the link goes on")
async def cancel_receive(bench: Stage) -> None:
    async with bench.pair() as ends:
        for source, target in ways(bench, *ends):

            async def scenario(steps: _Steps, source: End = source, target: End = target) -> None:
                sent = [bench.note() for _ in range(SOME)]
                arrived: list[Incoming] = []
                async with trio.open_nursery() as nursery:

                    @nursery.start_soon
                    async def send() -> None:
                        for message in sent:
                            await source.send(message)

                    with bench.within(f"{SOME} receives"), steps.cancelling():
                        for _ in sent:
                            arrived.append((await target.link.read.receive()).message)
                    # What the cancelled receive did not return must still be there for the next one.
                    arrived += await target.collect(SOME - len(arrived))
                lost = {number_of(each) for each in sent} - {number_of(each) for each in arrived}
                if lost:
                    raise bench.broken(f"a receive of the {target.name}'s, {steps}: {len(lost)} of {SOME} were lost")

            await _everywhere(bench, scenario)


@rule("A close that is cancelled, at any step, closes all the same")
async def cancel_close(bench: Stage) -> None:
    for end, half in ((0, "read"), (0, "write"), (1, "read"), (1, "write")):
        usually: tuple[bool, bool] | None = None

        async def scenario(steps: _Steps, end: int = end, half: str = half) -> None:
            nonlocal usually
            async with bench.pair() as ends:
                each, other = ends[end], ends[1 - end]
                channel: trio.abc.AsyncResource = getattr(each.link, half)
                with bench.within("aclose()"), steps.cancelling():
                    await channel.aclose()
                closed = isinstance(await each.attempt(half, "after its close"), trio.ClosedResourceError)
                # If the first run saw no end, the others won't either, and each wait for it would take a whole timeout.
                found = closed, half == "write" and usually != (True, False) and await other.ends()
                # What it does not do without a cancellation breaks a rule of its own.
                usually = usually or found
                if found != usually:
                    text = "it is not closed" if not closed else f"the {other.name} saw no end"
                    raise bench.broken(f"the {each.name}'s {half}.aclose(), {steps}: {text}")

        await _everywhere(bench, scenario)


def _message(bench: Stage) -> SessionMessage:
    return SessionMessage(bench.note())
