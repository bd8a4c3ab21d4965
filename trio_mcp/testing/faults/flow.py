"""One direction of a connection, and what both kinds of connections have in common: their script and their controls."""

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
        # A second close keeps the event: tasks wait on the one that is there, and `open` would wake only those that
        # wait on its replacement.
        if self._opened.is_set():
            self._opened = trio.Event()

    def open(self) -> None:
        self._opened.set()

    async def passed(self) -> None:
        """Wait until it is open."""
        # If it is closed again before this task runs, the task has not passed.
        while not self._opened.is_set():
            await self._opened.wait()


@attrs.frozen
class FaultStatistics:
    """The history of the connections so far.

    Attributes:
        connections: How many there were.
        live: How many there are.
        sent: The amount passed on from the side that connects: bytes on a wire, messages on a link.
        received: The amount passed on to it.
        steps: How often each kind of step has begun, by its name; those from a script and those done by hand.
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
        """Play a script, and then pass on what comes until its end.

        Returns:
            The step that ends the connection; None if the direction has ended by itself.
        """
        for step in steps:
            self.note(step)
            match step:
                case Tear() | Reset():
                    # The step is returned, not done here: it ends both directions, and only the connection's scope
                    # reaches both.
                    return step
                case Stall(seconds):
                    # Nothing is read meanwhile, so the buffers fill and the sender comes to wait: as with a peer that
                    # is frozen, and unlike one that reads and keeps silent.
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
        """Get a piece, unless one is held; return whether it is one, and not the end."""
        # An `Await` leaves its piece to the next step, and so does a step whose amount ends within a piece.
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
        """Pass on what comes.

        Args:
            amount: How much.
            seconds: For how long.
            size: The most of a piece.
            delay: How long each piece waits.
            copies: How often it is passed on.

        Returns:
            Whether the end has come, which is then held.
        """
        until = trio.current_time() + seconds
        left = math.inf if amount is None else amount
        while left:
            # Only the receive has a deadline: a send that is cancelled could pass on half of a piece.
            with trio.move_on_at(until):
                if not await self._take():
                    return True
            if self._held is None:
                break
            # The amount left may be infinite, which no slice takes; the length of the piece makes the minimum finite.
            piece = self._held[: int(min(left, size or len(self._held), len(self._held)))]
            # The rest is never empty: that would look like the end of the direction.
            self._held = self._held[len(piece) :] or None
            left -= len(piece)
            # The gate comes after the delay: a stall that begins meanwhile has to hold up this piece.
            if delay:
                await trio.sleep(delay)
            await self.gate.passed()
            # A dropped piece is not sent as no copies: an empty piece would end the direction.
            if copies:
                await self.send(piece * copies)
                self.passed(len(piece) * copies)
        return False


@attrs.define(eq=False)
class FaultyConnection:
    """A connection that can be ended from outside.

    Attributes:
        faults: Its faults.
        scope: Around all that the connection does.
        ending: How it ends; None if by itself.
    """

    faults: Faults
    scope: trio.CancelScope = attrs.Factory(trio.CancelScope)
    ending: Tear | Reset | None = None

    def end(self, how: Tear | Reset) -> None:
        """End it, unless it is ending."""
        # The first cause counts: errors that follow from a `Tear` must not turn it into a `Reset`.
        if self.ending is None:
            self.ending = how
            self.scope.cancel("a fault that the test asked for")


class FaultInjector(abc.ABC):
    """The faults that can strike all connections at once, while they are used.

    Attributes:
        calm: While this is set, new connections are left alone, and take nothing from the script.
    """

    def __init__(self, faults: Iterable[Faults], allowed: tuple[type[Step], ...], what: str) -> None:
        self.calm = False
        self._faults = iter(faults)
        self._allowed, self._what = allowed, what
        # The gates are shared by all connections, so that a stall also holds for those that open later.
        self._gates = Valve(), Valve()
        self._live: set[FaultyConnection] = set()
        self._connections = 0
        self._passed = [0, 0]
        self._steps: Counter[str] = Counter()

    def statistics(self) -> FaultStatistics:
        """Return what has happened so far."""
        sent, received = self._passed
        # The counts are copied, because they go on: the result that a test has must not change while it compares.
        return FaultStatistics(self._connections, len(self._live), sent, received, dict(self._steps))

    def stall(self, *, sent: bool = True, received: bool = True) -> None:
        """Let nothing pass on any connection, existing or new, until `resume`.

        Args:
            sent: Whether this holds for what the side that connects sends.
            received: Whether it holds for what that side receives.
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
        """End all connections, as `Tear` does; new ones are taken."""
        self._end(Tear())

    def reset(self, cause: Exception | None = None) -> None:
        """Break all connections, as `Reset` does; new ones are taken."""
        self._end(Reset(cause))

    @abc.abstractmethod
    def refuse(self, cause: Exception | None = None) -> None:
        """Refuse new connections, until `accept`; existing ones go on.

        A connection that a `FaultProxy` has not taken yet is reset.

        Args:
            cause: The exception that opening a link raises, by default a `TransportError`. Ignored on a wire.
        """

    @abc.abstractmethod
    def accept(self) -> None:
        """Take new connections again."""

    def _end(self, how: Tear | Reset) -> None:
        self._note(how)
        for connection in list(self._live):
            connection.end(how)

    def _note(self, step: Step) -> None:
        self._steps[type(step).__name__] += 1

    @contextlib.contextmanager
    def _opened(self) -> Iterator[FaultyConnection]:
        """Count a new connection, which has the next faults, while the block runs."""
        self._connections += 1
        faults = CALM if self.calm else next(self._faults, CALM)
        # The steps are checked only now, since the faults may be an iterator without end.
        check_steps((*faults.sent, *faults.received), self._allowed, self._what)
        connection = FaultyConnection(faults)
        # It is live before it runs: a test may end it while it connects. A scope can be cancelled before it is entered.
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
                ending = Reset()  # what one side has done, the other one sees
            # A direction that has ended by itself leaves the other one alone: sockets and links close by halves.
            if ending is not None:
                connection.end(ending)

        try:
            with connection.scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(play, sent, connection.faults.sent)
                    nursery.start_soon(play, received, connection.faults.received)
        finally:
            # `_opened` does this, too, but later: while a torn connection lingers, it neither counts nor can be ended
            # again.
            self._live.discard(connection)
