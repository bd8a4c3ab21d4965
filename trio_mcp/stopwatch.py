"""Provides the clock of a client's time limits, which is stopped while a person is asked, for example to sign in."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from contextvars import ContextVar
from types import TracebackType
from typing import Final, Self

import trio

__all__ = ["STOPWATCH", "Stopwatch", "TimeLimit", "current_stopwatch"]


class Stopwatch:
    """A clock that can be stopped, for example while a person is asked.

    Attributes:
        lost: The total length of all pauses that have ended, in seconds.
        stopped: Whether the clock is stopped now.
        stoppable: Whether anything may stop the clock, that is, whether the client has an ``auth=``.
        limits: The time limits that are in effect.
    """

    # Calls read the attributes instead of calling `time`, which would cost each of them a function call.

    def __init__(self) -> None:
        self.lost = 0.0
        self.stopped = self.stoppable = False
        self.limits: set[TimeLimit] = set()
        self._since = 0.0
        self._blocks = 0

    def time(self) -> float:
        """Return the time on this clock."""
        return (self._since if self.stopped else trio.current_time()) - self.lost

    def real(self, time: float) -> float:
        """Convert a time on this clock to Trio's clock, assuming no further pause; infinity during a pause."""
        if self.stopped:
            return math.inf
        real = time + self.lost
        # The result is rounded up, so that `time` has come by then: otherwise a task could wait again and again for a
        # remainder that was lost in rounding.
        while real - self.lost < time:
            real = math.nextafter(real, math.inf)
        return real

    @contextlib.contextmanager
    def pause(self) -> Iterator[None]:
        """Stop the clock while the block runs; several such blocks may overlap."""
        # Two people may be asked at once, and the pause lasts until the last block ends.
        self._blocks += 1
        if not self.stopped:
            self._since = trio.current_time()
            self._stop(True)
        try:
            yield
        finally:
            self._blocks -= 1
            if not self._blocks:
                # `lost` has to be updated before the limits are set again, because they depend on it.
                self.lost += trio.current_time() - self._since
                self._stop(False)

    def _stop(self, stopped: bool) -> None:
        self.stopped = stopped
        # A deadline in Trio can't stand still, so each is moved: to infinity, and later to the time that is left.
        for limit in self.limits:
            limit.set()

    def limit(self, seconds: float) -> TimeLimit:
        """Return a time limit that begins now."""
        return TimeLimit(self, self.time() + seconds)


class TimeLimit:
    """A cancel scope with a deadline on the clock of a stopwatch. It can be entered once.

    Args:
        watch: The stopwatch.
        deadline: The time on the stopwatch at which the scope is cancelled.
    """

    def __init__(self, watch: Stopwatch, deadline: float = math.inf) -> None:
        self._watch = watch
        self._deadline = deadline
        self._scope = trio.CancelScope()

    def __enter__(self) -> Self:
        # A pause that begins from now on moves the deadline. `set` takes account of one that has begun since this limit
        # was made.
        self._watch.limits.add(self)
        self.set()
        self._scope.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        # The stopwatch lives as long as its client, and would otherwise keep every limit ever entered.
        self._watch.limits.discard(self)
        return self._scope.__exit__(kind, exc, traceback)

    @property
    def deadline(self) -> float:
        """The time on the stopwatch at which the scope is cancelled."""
        return self._deadline

    @deadline.setter
    def deadline(self, deadline: float) -> None:
        self._deadline = deadline
        self.set()

    def set(self) -> None:
        """Set the Trio deadline again, after this limit's deadline or the stopwatch has changed."""
        self._scope.deadline = self._watch.real(self._deadline)

    def cancel(self, reason: str | None = None) -> None:
        """Cancel the scope now."""
        self._scope.cancel(reason)

    @property
    def cancelled_caught(self) -> bool:
        """Whether this limit has cancelled its block."""
        return self._scope.cancelled_caught


STOPWATCH: Final[ContextVar[Stopwatch]] = ContextVar("STOPWATCH")
"""The stopwatch of the client to which the current task belongs."""

# This stopwatch belongs to the run, as Trio's clock does: a time of one run means nothing in another.
_OF_RUN: Final = trio.lowlevel.RunVar[Stopwatch]("stopwatch")


def current_stopwatch() -> Stopwatch:
    """Return the stopwatch of the client that this task belongs to, or else that of the current Trio run."""
    # A context variable is used, because links are opened by functions of the application, which get no arguments. The
    # run has a stopwatch of its own, because sessions without a `Client` have to wait for a person as well.
    if (found := STOPWATCH.get(None)) is not None:
        return found
    try:
        return _OF_RUN.get()
    except LookupError:
        found = Stopwatch()
        _OF_RUN.set(found)
        return found
    except RuntimeError:  # no Trio run has begun yet, so there is no run to keep it in
        return Stopwatch()
