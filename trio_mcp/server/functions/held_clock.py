"""Makes virtual time stand still in tests while a thread of a sync function or of ``trio.to_thread`` is running.

Trio's ``autojump_clock`` jumps when all tasks wait, and can't know that one of them waits for a thread. So the clock
would skip the thread's work and jump to the next deadline.
"""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Iterator
from typing import Any

import trio

__all__ = ["OUR_THREAD", "HoldingLimiter", "held_clock"]

# The time is arbitrary. A thread that takes longer is probably stuck: then a jump to the next deadline, which shows
# what was waiting for the thread, helps more than a test that never ends.
PATIENCE = 60.0
"""Seconds of real time that a thread may hold the clock while nothing else happens."""

OUR_THREAD: contextvars.ContextVar[bool] = contextvars.ContextVar("trio_mcp thread", default=False)
"""Whether this code runs in a thread that holds the clock, or in the event loop on behalf of such a thread."""


class HeldClock(trio.abc.Instrument):
    """An instrument that keeps a clock from jumping by itself while threads run.

    A thread that waits for the event loop, in ``trio.from_thread.run``, does not count, because the function that it
    waits for may need time to pass.

    Args:
        clock: A `trio.testing.MockClock`.
    """

    def __init__(self, clock: Any) -> None:
        self._clock = clock
        self._threshold = 0.0  # the user's threshold, while the clock is held
        self._holders = 0  # how many threads and watchers need the instrument
        self._threads = 0
        self._watchers = 0
        self._waiting: set[trio.lowlevel.Task] = set()  # the tasks that wait for a thread of `trio.to_thread`
        self._own: set[trio.lowlevel.Task] = set()  # the tasks that wait for one of our threads
        self._guests: set[trio.lowlevel.Task] = set()  # the tasks that run something for one of our threads

    def thread_started(self) -> None:
        """Count a thread that is about to run on behalf of the current task."""
        self._own.add(trio.lowlevel.current_task())
        self._attach()
        self._threads += 1
        self._update()

    def thread_ended(self) -> None:
        """Record that a thread has ended."""
        self._threads -= 1
        if not self._threads:
            self._own.clear()
        self._update()
        self._detach()

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Also hold the clock while any task waits for a thread of ``trio.to_thread``, for as long as the block runs.

        A function that such a thread calls with ``trio.from_thread`` runs in the task that waits for the thread, so
        time passes meanwhile; but not if the thread was started with ``abandon_on_cancel=True``.
        """
        self._attach()
        self._watchers += 1
        try:
            yield
        finally:
            self._watchers -= 1
            if not self._watchers:
                self._waiting.clear()
            self._update()
            self._detach()

    def _attach(self) -> None:
        if not self._holders:
            trio.lowlevel.add_instrument(self)
        self._holders += 1

    def _detach(self) -> None:
        self._holders -= 1
        if not self._holders:
            trio.lowlevel.remove_instrument(self)

    # Trio asks the clock whether to jump only after a round of task steps, so changes during the steps take effect in
    # time.
    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        if not self._watchers:
            return
        before = len(self._waiting)
        if not _waits_for_thread(task):
            self._waiting.discard(task)
            self._own.discard(task)
        elif task not in self._own:
            self._waiting.add(task)
        if len(self._waiting) != before:
            self._update()

    # `trio.from_thread.run` starts a system task in the context of the calling thread, as our threads may be abandoned.
    # The tasks that the system task starts inherit the context, but are not children of Trio's root task.
    def task_spawned(self, task: trio.lowlevel.Task) -> None:
        nursery = task.parent_nursery
        of_system = nursery is not None and nursery.parent_task is trio.lowlevel.current_root_task()
        if of_system and task.context.get(OUR_THREAD):
            self._guests.add(task)
            self._update()

    def task_exited(self, task: trio.lowlevel.Task) -> None:
        if task in self._guests:
            self._guests.remove(task)
            self._update()

    def _update(self) -> None:
        # A threshold that the user has set meanwhile is kept, as only our own may be reset.
        clock, running = self._clock, self._threads > len(self._guests) or bool(self._waiting)
        if running and clock.autojump_threshold < PATIENCE:
            self._threshold = clock.autojump_threshold
            clock.autojump_threshold = PATIENCE
        elif not running and clock.autojump_threshold == PATIENCE:
            clock.autojump_threshold = self._threshold


def _waits_for_thread(task: trio.lowlevel.Task) -> bool:
    """Return whether a task in ``trio.to_thread.run_sync`` is waiting for its thread, not starting or serving it."""
    before = None
    for frame, _ in task.iter_await_frames():
        if before is _RUN_SYNC and frame.f_code is _RESCHEDULED:
            return True
        before = frame.f_code
    return False


_RUN_SYNC = trio.to_thread.run_sync.__code__
_RESCHEDULED = trio.lowlevel.wait_task_rescheduled.__code__


class HoldingLimiter:
    """A limiter of threads that also holds the clock, from the start of each thread to its real end.

    Args:
        limiter: The limiter that decides when a thread may start.
        clock: The clock to hold.
    """

    def __init__(self, limiter: trio.CapacityLimiter, clock: HeldClock) -> None:
        self._limiter = limiter
        self._clock = clock

    async def acquire_on_behalf_of(self, thread: object) -> None:
        await self._limiter.acquire_on_behalf_of(thread)
        self._clock.thread_started()

    # Trio calls this in the event loop when the thread has ended, even if it was abandoned, and just before it wakes
    # the waiting task, so there is no moment for a jump in between.
    def release_on_behalf_of(self, thread: object) -> None:
        self._clock.thread_ended()
        self._limiter.release_on_behalf_of(thread)


_HELD: trio.lowlevel.RunVar[HeldClock | None] = trio.lowlevel.RunVar("held clock")


def held_clock() -> HeldClock | None:
    """Return the instrument that holds the clock of this run of Trio; None if the clock is not a virtual one."""
    # Only a MockClock has this attribute; importing `trio.testing` for its class would cost every server time.
    try:
        return _HELD.get()
    except LookupError:
        clock = trio.lowlevel.current_clock()
        held = HeldClock(clock) if hasattr(clock, "autojump_threshold") else None
        _HELD.set(held)
        return held
