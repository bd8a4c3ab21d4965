"""The parts that faulty connections over wires (bytes) and links (messages) share: flows with scripts, and controls."""

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
"""A piece of a flow: bytes or messages. Both are sliced, repeated and counted alike; an empty piece marks the end."""


class Valve:
    """A valve in a flow: tasks that want to pass wait while it is closed."""

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
    """Statistics of the connections so far, and of what happened to them.

    Attributes:
        connections: The number of connections opened so far.
        live: The number of connections that are open now.
        sent: The amount passed on from the side that connects: bytes on a wire, messages on a link.
        received: The amount passed on to the side that connects, counted likewise.
        steps: How often each kind of step has begun, by the step's name, whether from a script or by a method call.
    """

    connections: int
    live: int
    sent: int
    received: int
    steps: Mapping[str, int]


@attrs.define(eq=False)
class Flow(Generic[PieceT]):
    """One direction of a connection, in which a script determines what is passed on, and when.

    Attributes:
        receive: Returns the next piece, or an empty one at the end. Cancelling the call loses nothing.
        send: Passes a piece on; an empty one ends the direction.
        gate: A valve that is closed while nothing may pass.
        note: Called with each step as it begins.
        passed: Called with the amount of each piece that has been passed on.
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
            The step that ends the connection, or None if the direction ended by itself.
        """
        for step in steps:
            self.note(step)
            match step:
                case Tear() | Reset():
                    # The step is returned rather than carried out at once: it ends both directions, and only the
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
        # A stall by `FaultInjector.stall` holds up the end, too: through a frozen connection a peer does not even see a
        # close.
        await self.gate.passed()
        assert self._held is not None
        await self.send(self._held)
        return None

    async def _take(self) -> bool:
        """Receive a piece, unless one is left over from the last step; return False if the direction has ended."""
        # A piece may be left over, because an `Await`, or a step whose amount ends within a piece, leaves it to the
        # next step.
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
        """Pass on what arrives, as one step of the script says.

        Args:
            amount: How much to pass on; None for no limit.
            seconds: How long to wait for the whole amount.
            size: The maximum size of a piece to pass on.
            delay: How long to hold up each piece, in seconds.
            copies: How many times to pass on each piece.

        Returns:
            Whether the direction has ended. If so, the empty piece that marks the end is kept for the caller.
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
            # If nothing is left, None is kept, because an empty piece would look like the end of the direction.
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
    """A connection with faults, which can be ended at any time by a call to ``end``.

    Attributes:
        faults: The scripts for the two directions of the connection.
        scope: The cancel scope around both directions.
        ending: The step that ends the connection; None if the connection ends by itself.
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
    """The base of `FaultLinks` and `FaultProxy`: its methods cause faults on all connections at once.

    Attributes:
        calm: While this is True, new connections are left alone and use up none of the faults.
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
        """Return counts of what has happened so far."""
        sent, received = self._passed
        # The counts are copied, because counting continues: a result must not change while a test compares it.
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
        """Let everything pass again after `stall`; what was held up is not lost."""
        for gate in self._gates:
            gate.open()

    def tear(self) -> None:
        """End all open connections, as the step `Tear` does; new ones are still accepted."""
        self._end(Tear())

    def reset(self, cause: Exception | None = None) -> None:
        """Break all open connections, as the step `Reset` does; new ones are still accepted."""
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
        """Register a new connection, assign it the next faults, and count it as live while the block runs."""
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
        """Play the scripts of both directions of a connection until it ends."""

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
            # `_opened` discards the connection, too, but later: a torn connection that lingers must not count as live,
            # or be ended again.
            self._live.discard(connection)
