"""One direction of a connection, and the script and controls that connections over wires and links have in common."""

from __future__ import annotations

import abc
import contextlib
import math
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from typing import Generic, TypeVar

import attrs
import trio

from trio_mcp.jsonrpc.messages import SessionMessage
from trio_mcp.testing.faults.steps import (
    CALM,
    Await,
    Delay,
    Drop,
    Duplicate,
    Faults,
    Pass,
    Reset,
    Split,
    Stall,
    Step,
    Tear,
    check_steps,
)

__all__ = ["FaultInjector", "FaultStatistics", "FaultyConnection", "Flow", "Valve"]

PieceT = TypeVar("PieceT", bytes, tuple[SessionMessage, ...])
"""A piece of a flow: bytes, or messages. Both can be cut, joined and counted alike; an empty one is the end."""


class Valve:
    """A valve that lets nothing pass while it is closed."""

    def __init__(self) -> None:
        self._opened = trio.Event()
        self._opened.set()

    def close(self) -> None:
        # A second close keeps the event: tasks already wait on it, and `open` would wake only those that wait on its
        # replacement.
        if self._opened.is_set():
            self._opened = trio.Event()

    def open(self) -> None:
        self._opened.set()

    async def passed(self) -> None:
        """Wait until the valve is open."""
        # If the valve is closed again before this task runs, the task has not passed.
        while not self._opened.is_set():
            await self._opened.wait()


@attrs.frozen
class FaultStatistics:
    """Counts of the connections so far, and of what happened to them.

    Attributes:
        connections: The number of connections opened so far.
        live: The number that are open now.
        sent: The amount passed on from the side that connects: bytes on a wire, messages on a link.
        received: The amount passed on to that side.
        steps: How often each kind of step has begun, by its name, whether from a script or by hand.
    """

    connections: int
    live: int
    sent: int
    received: int
    steps: Mapping[str, int]


@attrs.define(eq=False)
class Flow(Generic[PieceT]):
    """One direction of one connection.

    Attributes:
        receive: Returns the next piece, an empty one at the end. Cancelling it loses nothing.
        send: Passes a piece on; an empty one ends the direction.
        gate: Closed while nothing may pass.
        note: Called with each step as it begins.
        passed: Called with how much has been passed on.
    """

    receive: Callable[[], Awaitable[PieceT]]
    send: Callable[[PieceT], Awaitable[None]]
    gate: Valve
    note: Callable[[Step], None]
    passed: Callable[[int], None]
    _held: PieceT | None = None

    async def play(self, steps: Iterable[Step]) -> Tear | Reset | None:
        """Play a script, and then pass on whatever arrives until the direction ends.

        Returns:
            The step that ends the connection; None if the direction ended by itself.
        """
        for step in steps:
            self.note(step)
            match step:
                case Tear() | Reset():
                    # The step is returned rather than carried out here: it ends both directions, and only the
                    # connection's scope reaches both.
                    return step
                case Stall(seconds):
                    # Nothing is read meanwhile, so the buffers fill and the sender has to wait, as with a frozen peer;
                    # a peer that reads but stays silent would not have this effect.
                    await trio.sleep(seconds)
                    ended = False
                case Await():
                    ended = not await self._take()
                case Pass(amount, seconds):
                    ended = await self._flow(amount, seconds=seconds)
                case Delay(seconds, amount):
                    ended = await self._flow(amount, delay=seconds)
                case Split(size, amount, seconds):
                    ended = await self._flow(amount, size=size, delay=seconds)
                case Drop(amount):
                    ended = await self._flow(amount, copies=0)
                case Duplicate(amount):
                    ended = await self._flow(amount, copies=2)
            if ended:
                break
        else:
            await self._flow(None)
        # A stall by hand holds up the end, too: through a frozen connection a peer does not even see a close.
        await self.gate.passed()
        assert self._held is not None
        await self.send(self._held)
        return None

    async def _take(self) -> bool:
        """Get a piece, unless one is held already; return False if the direction has ended."""
        # A piece may be held, because an `Await`, or a step whose amount ends within a piece, leaves it to the next
        # step.
        if self._held is None:
            self._held = await self.receive()
        return len(self._held) > 0

    async def _flow(
        self,
        amount: int | None,
        *,
        seconds: float = math.inf,
        size: int | None = None,
        delay: float = 0,
        copies: int = 1,
    ) -> bool:
        """Pass on what arrives.

        Args:
            amount: How much to pass on; None for no limit.
            seconds: How long to wait for it in all.
            size: The largest piece to pass on.
            delay: How long to hold up each piece, in seconds.
            copies: How often to pass on each piece.

        Returns:
            Whether the direction has ended. The empty piece that says so is then held.
        """
        until = trio.current_time() + seconds
        left = math.inf if amount is None else amount
        while left:
            # Only the receive has a deadline: a cancelled send might pass on only part of a piece.
            with trio.move_on_at(until):
                if not await self._take():
                    return True
            if self._held is None:
                break
            # The amount left may be infinite, which no slice accepts; the length of the piece makes the minimum finite.
            piece = self._held[: int(min(left, size or len(self._held), len(self._held)))]
            # The rest is never empty: that would look like the end of the direction.
            self._held = self._held[len(piece) :] or None
            left -= len(piece)
            # The gate comes after the delay: a stall that begins during it has to hold up this piece.
            if delay:
                await trio.sleep(delay)
            await self.gate.passed()
            # Without copies nothing is sent: `piece * 0` is an empty piece, which would end the direction.
            if copies:
                await self.send(piece * copies)
                self.passed(len(piece) * copies)
        return False


@attrs.define(eq=False)
class FaultyConnection:
    """A connection that can be ended from outside.

    Attributes:
        faults: Its faults.
        scope: The scope around both of its directions.
        ending: The step that ends the connection; None if it ends by itself.
    """

    faults: Faults
    scope: trio.CancelScope = attrs.Factory(trio.CancelScope)
    ending: Tear | Reset | None = None

    def end(self, how: Tear | Reset) -> None:
        """End the connection, unless it is already ending."""
        # The first cause is kept: errors that follow from a `Tear` must not turn it into a `Reset`.
        if self.ending is None:
            self.ending = how
            self.scope.cancel("a fault that the test asked for")


class FaultInjector(abc.ABC):
    """The faults that can strike all connections at once, while they are used.

    Attributes:
        calm: While this is set, new connections are left alone and use up none of the faults.
    """

    def __init__(self, faults: Iterable[Faults], allowed: tuple[type[Step], ...], what: str) -> None:
        self.calm = False
        self._faults = iter(faults)
        self._allowed, self._what = allowed, what
        # The gates are shared by all connections, so that a stall also applies to those that open later.
        self._gates = Valve(), Valve()
        self._live: set[FaultyConnection] = set()
        self._connections = 0
        self._passed = [0, 0]
        self._steps: Counter[str] = Counter()

    def statistics(self) -> FaultStatistics:
        """Return what has happened so far."""
        sent, received = self._passed
        # The counts are copied, because counting goes on: a result must not change while a test compares it.
        return FaultStatistics(self._connections, len(self._live), sent, received, dict(self._steps))

    def stall(self, *, sent: bool = True, received: bool = True) -> None:
        """Let nothing pass on any connection, existing or new, until `resume`.

        Args:
            sent: Whether to stall what the side that connects sends.
            received: Whether to stall what that side receives.
        """
        self._note(Stall())
        for gate, chosen in zip(self._gates, (sent, received), strict=True):
            if chosen:
                gate.close()

    def resume(self) -> None:
        """Let everything pass again; what was held up is not lost."""
        for gate in self._gates:
            gate.open()

    def tear(self) -> None:
        """End all connections, as `Tear` does; new ones are still accepted."""
        self._end(Tear())

    def reset(self, cause: Exception | None = None) -> None:
        """Break all connections, as `Reset` does; new ones are still accepted."""
        self._end(Reset(cause))

    @abc.abstractmethod
    def refuse(self, cause: Exception | None = None) -> None:
        """Refuse new connections until `accept` is called; existing ones continue.

        A connection that still waits in the backlog of a `FaultProxy` is reset.

        Args:
            cause: The exception that opening a link raises, by default a `TransportError`. Ignored on a wire.
        """

    @abc.abstractmethod
    def accept(self) -> None:
        """Accept new connections again."""

    def _end(self, how: Tear | Reset) -> None:
        self._note(how)
        for connection in list(self._live):
            connection.end(how)

    def _note(self, step: Step) -> None:
        self._steps[type(step).__name__] += 1

    @contextlib.contextmanager
    def _opened(self) -> Iterator[FaultyConnection]:
        """Count a new connection, give it the next faults, and keep it live while the block runs."""
        self._connections += 1
        faults = CALM if self.calm else next(self._faults, CALM)
        # The steps are checked only now, since the faults may be an iterator without end.
        check_steps((*faults.sent, *faults.received), self._allowed, self._what)
        connection = FaultyConnection(faults)
        # The connection is live before it runs, since a test may end it while it connects: a scope can be cancelled
        # before it is entered.
        self._live.add(connection)
        try:
            yield connection
        finally:
            self._live.discard(connection)

    def _flow(
        self,
        direction: int,
        receive: Callable[[], Awaitable[PieceT]],
        send: Callable[[PieceT], Awaitable[None]],
    ) -> Flow[PieceT]:
        def passed(amount: int) -> None:
            self._passed[direction] += amount

        return Flow(receive, send, self._gates[direction], self._note, passed)

    async def _run(self, connection: FaultyConnection, sent: Flow[PieceT], received: Flow[PieceT]) -> None:
        """Let both directions of a connection run until it ends."""

        async def play(flow: Flow[PieceT], steps: tuple[Step, ...]) -> None:
            try:
                ending = await flow.play(steps)
            except (trio.BrokenResourceError, trio.ClosedResourceError, OSError):
                ending = Reset()  # one side broke the connection, so the other side sees a reset
            # A direction that ended by itself leaves the other one alone: sockets and links can be half-closed.
            if ending is not None:
                connection.end(ending)

        try:
            with connection.scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(play, sent, connection.faults.sent)
                    nursery.start_soon(play, received, connection.faults.received)
        finally:
            # `_opened` does this, too, but later: a torn connection that lingers must not count as live, or be ended
            # again.
            self._live.discard(connection)
