"""Rules of the transport contract about cancellation, at every step of each operation."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from types import TracebackType
from typing import Any, TypeVar

import trio

from trio_mcp.jsonrpc.messages import Incoming, SessionMessage
from trio_mcp.link import Link
from trio_mcp.testing.contract.pressure import Stuck, ways
from trio_mcp.testing.contract.rule import rule
from trio_mcp.testing.contract.stage import End, Stage, descriptors, number_of, settled, tasks

__all__: list[str] = []

T = TypeVar("T")

SOME = 8
"""How many messages to send or receive in an operation that is then cancelled. An arbitrary choice."""


class _Steps(trio.abc.Instrument):
    """Counts the steps that all tasks take while the counter is on, and cancels a scope after a given number of steps.

    Attributes:
        last: The number of steps after which to cancel; 0 to cancel before the first, None to cancel nothing.
        scope: The scope to cancel.
        count: The number of steps so far.
    """

    def __init__(self, last: int | None = None) -> None:
        self.last = last
        self.scope = trio.CancelScope()
        self.count = 0
        self._is_on = False

    def on(self) -> None:
        """Begin to count steps."""
        trio.lowlevel.add_instrument(self)
        self._is_on = True
        # To cancel before the first step, the count is compared at once: `after_task_step` would be too late.
        self._look()

    def off(self) -> None:
        """Stop counting; do nothing if counting has not begun."""
        if self._is_on:
            self._is_on = False
            trio.lowlevel.remove_instrument(self)

    @contextlib.contextmanager
    def cancelling(self) -> Iterator[None]:
        """Count steps while a block runs, and cancel the block after step ``last``."""
        with self.scope:
            self.on()
            try:
                yield
            finally:
                self.off()

    # The steps of all tasks count: it matters how far the transport's own tasks have come at the cancellation.
    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        self.count += 1
        self._look()

    def _look(self) -> None:
        if self.count == self.last:
            self.scope.cancel("cancelled by check_transport")

    def __str__(self) -> str:
        return "without a cancellation" if self.last is None else f"cancelled after {self.last} steps"


async def _everywhere(stage: Stage, scenario: Callable[[_Steps], Awaitable[None]]) -> None:
    """Run a scenario once to count its steps, then cancel it at each of them, or at `Stage.places` of them at most."""
    await scenario(whole := _Steps())
    # Places a few steps beyond those counted are tried, too: Trio shuffles its tasks, so the next run may take longer.
    total = whole.count + 3
    # The places are spread over the whole scenario: the last steps, in which things are closed, matter as much as the
    # first.
    for n in range(places := min(total, stage.places)):
        await scenario(_Steps(n * total // places))


# --- the block --------------------------------------------------------------------------------------------------------


@rule("Opening that is cancelled, at any step, leaves nothing running, and the next connection opens")
async def cancel_open(stage: Stage) -> None:
    async def scenario(steps: _Steps) -> None:
        with steps.scope:
            steps.on()
            try:
                async with stage.pair():
                    # Counting stops before the block does anything, since this rule is not about the block.
                    steps.off()
            finally:
                steps.off()

    await _leaves_nothing(stage, scenario)


@rule("Leaving that is cancelled, at any step, leaves nothing running, and the next connection opens")
async def cancel_leave(stage: Stage) -> None:
    async def scenario(steps: _Steps) -> None:
        with steps.scope:
            try:
                async with stage.pair() as (client, server):
                    await stage.talk(client, server)
                    # The other end does not receive this message, so it is still in transit when the block is left.
                    await client.send(stage.note())
                    steps.on()
            finally:
                steps.off()

    await _leaves_nothing(stage, scenario)


async def _leaves_nothing(stage: Stage, scenario: Callable[[_Steps], Awaitable[None]]) -> None:
    before = [(now, now()) for now in (tasks, descriptors)]
    await scenario(_Steps())
    # Tasks or descriptors that are left even without a cancellation break another rule, so they are not watched.
    watched = [(now, at_first) for now, at_first in before if not await stage.nothing_left(now, at_first)]

    async def watching(steps: _Steps) -> None:
        await scenario(steps)
        for now, at_first in watched:
            if left := await stage.nothing_left(now, at_first):
                raise stage.broken(f"{steps}, it left {', '.join(left[:3])}")

    await _everywhere(stage, watching)
    async with stage.pair() as (client, server):
        await stage.talk(client, server)


@rule("A cancellation is not swallowed: it gets out of opening, of the block, and of a receive that waits")
async def cancellation(stage: Stage) -> None:
    went_on = []
    with trio.CancelScope() as scope:
        scope.cancel()
        async with stage.pair():
            went_on.append("the block of a connection that was cancelled before it was opened")
    with trio.CancelScope() as scope:
        async with stage.pair():
            scope.cancel()
            await trio.sleep_forever()
        went_on.append("the code after a block that was cancelled")
    async with stage.pair() as ends:
        for each in ends:
            # The timeout is for a receive that swallows its cancellation and keeps waiting.
            with trio.move_on_after(stage.timeout), trio.CancelScope() as scope:
                async with trio.open_nursery() as nursery:

                    @nursery.start_soon
                    async def cancel(scope: trio.CancelScope = scope) -> None:
                        # The cancellation comes once the receive waits: earlier, it would strike at a checkpoint before
                        # the wait.
                        await settled()
                        scope.cancel()

                    await each.link.read.receive()
                    went_on.append(f"a cancelled receive of the {each.name}")
    if went_on:
        raise stage.broken(f"{went_on[0]} went on as if nothing had happened")


@rule(
    "Opening, sending, receiving, closing and leaving are checkpoints: other tasks run, and a cancellation is noticed"
)
async def checkpoints(stage: Stage) -> None:
    from trio.testing import assert_checkpoints  # deferred: trio.testing imports pytest where it is installed

    without: list[str] = []

    async def check(what: str, operation: Awaitable[T]) -> T:
        done: list[T] = []
        try:
            with assert_checkpoints():
                done.append(await operation)
        # If the operation has not returned, the transport itself raised the AssertionError, which then says nothing
        # about checkpoints.
        except AssertionError:
            if not done:
                raise
            without.append(what)
        return done[0]

    with stage.within("opening, sending, receiving, closing and leaving"):
        async with _Leaving(stage.bare(), check) as (client, server):
            ends = {"client": client, "server": server}
            for name, other in (("client", "server"), ("server", "client")):
                await check(f"the {name}'s send", ends[name].write.send(SessionMessage(stage.note())))
                await check(f"the {other}'s receive", ends[other].read.receive())
                # With the trait `calls_only` the server can't send on its own: its send would wait for a request that
                # never comes.
                if "calls_only" in stage.traits:
                    break
            for half in (client.write, client.read, server.write, server.read):
                await check("a close", half.aclose())
    if without:
        raise stage.broken(f"these operations executed no checkpoint: {', '.join(without)}")


# With a plain `async with`, nothing can run between the opening and the block, but that is where the check of the
# opening must end.
class _Leaving(contextlib.AbstractAsyncContextManager[tuple[Link, Link]]):
    """A wrapper for a context manager that checks its opening and its leaving for checkpoints."""

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
async def cancel_send(stage: Stage) -> None:
    async with stage.pair() as ends:
        for source, target in ways(stage, *ends):

            async def scenario(steps: _Steps, source: End = source, target: End = target) -> None:
                sent: list[Incoming] = []
                async with _checking(stage, source, target, sent, str(steps)):
                    with stage.within(f"{SOME} sends"), steps.cancelling():
                        for _ in range(SOME):
                            await source.link.write.send(SessionMessage(message := stage.note()))
                            # The message counts only once its send has returned: a send that raises `Cancelled` must
                            # not have sent anything.
                            sent.append(message)

            await _everywhere(stage, scenario)
            async with trio.open_nursery() as nursery:
                waits = await (stuck := Stuck(stage, source)).fill(nursery)
                nursery.cancel_scope.cancel()
                await stuck.gives_up(target)
            if waits:
                async with _checking(stage, source, target, stuck.sent, "cancelled while it waited for the reader"):
                    pass


@contextlib.asynccontextmanager
async def _checking(stage: Stage, source: End, target: End, sent: list[Incoming], when: str) -> AsyncIterator[None]:
    """Read messages during and after the block, and check that the messages in ``sent`` arrive, and no others."""
    last = stage.note()
    arrived: list[Incoming] = []
    async with trio.open_nursery() as nursery:

        @nursery.start_soon
        async def read() -> None:
            # If messages may overtake each other, the last one need not come last.
            while len(arrived) <= len(sent) or last not in arrived:
                if not (taken := await target.collect(1)):
                    break
                arrived.extend(taken)

        yield
        await source.send(last)
    due, came = ([number_of(each) for each in some] for some in ([*sent, last], arrived))
    if lost := [number for number in due if number not in came]:
        raise stage.broken(f"{len(lost)} of {len(due)} messages were lost by the {source.name}'s send, {when}")
    if len(came) > len(due):
        raise stage.broken(f"a send of the {source.name}, {when}: a message arrived although its send was cancelled")


@rule("A receive that is cancelled, at any step, loses nothing; the link goes on")
async def cancel_receive(stage: Stage) -> None:
    async with stage.pair() as ends:
        for source, target in ways(stage, *ends):

            async def scenario(steps: _Steps, source: End = source, target: End = target) -> None:
                sent = [stage.note() for _ in range(SOME)]
                arrived: list[Incoming] = []
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(source.send_all, sent)
                    with stage.within(f"{SOME} receives"), steps.cancelling():
                        for _ in sent:
                            arrived.append((await target.link.read.receive()).message)
                    # A message that the cancelled receive did not return must still be there for the next one.
                    arrived += await target.collect(SOME - len(arrived))
                lost = {number_of(each) for each in sent} - {number_of(each) for each in arrived}
                if lost:
                    raise stage.broken(
                        f"{len(lost)} of {SOME} messages were lost by the {target.name}'s receive, {steps}"
                    )

            await _everywhere(stage, scenario)


@rule("A close that is cancelled, at any step, still closes")
async def cancel_close(stage: Stage) -> None:
    for end, half in ((0, "read"), (0, "write"), (1, "read"), (1, "write")):
        usually: tuple[bool, bool] | None = None

        async def scenario(steps: _Steps, end: int = end, half: str = half) -> None:
            nonlocal usually
            async with stage.pair() as ends:
                each, other = ends[end], ends[1 - end]
                channel: trio.abc.AsyncResource = getattr(each.link, half)
                with stage.within("aclose()"), steps.cancelling():
                    await channel.aclose()
                closed = isinstance(await each.attempt(half, "after its close"), trio.ClosedResourceError)
                # If the other end saw no end in the first run, it won't in later ones, where each wait for the end
                # would take a whole timeout.
                found = closed, half == "write" and usually != (True, False) and await other.ends()
                # The first run, which is not cancelled, shows what to expect: a close that fails even then breaks
                # another rule.
                usually = usually or found
                if found != usually:
                    text = "it is not closed" if not closed else f"the {other.name} saw no end"
                    raise stage.broken(f"the {each.name}'s {half}.aclose(), {steps}: {text}")

        await _everywhere(stage, scenario)
