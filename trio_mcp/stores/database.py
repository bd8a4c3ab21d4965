"""An SQLite database and its thread, in which operations that wait at the same time become one transaction."""

from __future__ import annotations

import contextlib
import queue
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

import attrs
import outcome
import trio

from trio_mcp.stores.sqlite_file import BUSY, LockedFile, SqliteFile

__all__ = ["Database"]

T = TypeVar("T")

TOGETHER = 64
"""The maximum number of operations in a transaction (arbitrary): the first one has to wait until all are done."""

PATIENCE = 0.5
"""Seconds after which the thread looks which operations still wait for a locked file (arbitrary)."""

IDLE = 10.0
"""Seconds without work after which the thread ends (arbitrary): a store that is dropped unclosed leaves no thread."""


@attrs.define(eq=False)
class _Job:
    """An operation, and the Trio task that waits for it; if ``work`` is None, the operation closes the database.

    Attributes:
        deadline: The time on the monotonic clock at which it stops waiting for other processes; when the task is
            cancelled, that is at once.
    """

    work: Callable[[sqlite3.Connection], Any] | None
    deadline: float
    task: trio.lowlevel.Task = attrs.Factory(trio.lowlevel.current_task)
    token: trio.lowlevel.TrioToken = attrs.Factory(trio.lowlevel.current_trio_token)

    def done(self, result: outcome.Outcome[Any]) -> None:
        """Wake the task with a result; called in the thread of the database."""
        # The error is raised only after a crash of Trio: otherwise the task is still waiting.
        with contextlib.suppress(trio.RunFinishedError):
            self.token.run_sync_soon(trio.lowlevel.reschedule, self.task, result)


@attrs.define(eq=False)
class Database:
    """An SQLite file, and the thread that opens, uses and closes it.

    With `trio.to_thread`, two thirds of an operation's time would be spent on passing it to a thread (measured).

    Args:
        path: The file, which is opened when it is first needed: see `SqliteFile.at`.
        prepare: Called with each new connection, in the thread, outside a transaction.
        timeout: Seconds for which an operation may wait, for its turn and for other processes, before it fails.
        synchronous: See `SqliteFile.transact`.
        reading: Whether the operations only read. They then do not wait for writers, in this process or in others.

    Attributes:
        timeout: See above.
        running: Whether the thread is running, or about to start.
    """

    _path: str | bytes
    _prepare: Callable[[sqlite3.Connection], object]
    timeout: float = attrs.Factory(lambda: BUSY)
    _synchronous: str = "NORMAL"
    _reading: bool = False
    _file: SqliteFile | None = None
    _lock: threading.Lock = attrs.Factory(threading.Lock)  # guards `_jobs` and `running`; held only for moments
    _jobs: deque[_Job] = attrs.Factory(deque)
    running: bool = False
    _bell: queue.SimpleQueue[None] = attrs.Factory(queue.SimpleQueue)  # gets an item for each job while the thread runs

    async def run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Call a function in the database's thread, in a transaction, and return its result.

        No other process writes during the transaction, unless this database only reads. If the function fails, the
        transaction is rolled back.

        The function may be called twice: if another function fails in the same transaction, each gets a transaction of
        its own.

        If the call is cancelled before the thread has dequeued the function, the function is not called. If it is
        cancelled later, this method waits for the end of the transaction, and returns the result; but while other
        processes keep the file locked, it gives up, within `PATIENCE` seconds, and the function has no effect.

        Raises:
            LockedFile: If other processes kept the file locked until the timeout; the function then has no effect.
            Exception: Whatever opening the database, the function or the transaction raises.
        """
        result: T = await self._submit(work)
        return result

    async def close(self) -> None:
        """Close the database after the operations in the queue; `run` opens it again."""
        await self._submit(None)

    async def _submit(self, work: Callable[[sqlite3.Connection], Any] | None) -> Any:
        await trio.lowlevel.checkpoint_if_cancelled()
        job = _Job(work, time.monotonic() + self.timeout)
        with self._lock:
            self._jobs.append(job)
            start, self.running = not self.running, True
        if not start:
            self._bell.put(None)
        else:
            try:
                # Trio's threads are used, because they don't keep the process alive, and are reused.
                trio.lowlevel.start_thread_soon(self._serve, lambda _: None, "store")
            except BaseException:
                with self._lock:
                    self._jobs.remove(job)
                    self.running = False
                raise

        def abort(_: object) -> trio.lowlevel.Abort:
            with self._lock:
                if job not in self._jobs:
                    job.deadline = time.monotonic()
                    return trio.lowlevel.Abort.FAILED
                self._jobs.remove(job)
            return trio.lowlevel.Abort.SUCCEEDED

        try:
            return await trio.lowlevel.wait_task_rescheduled(abort)
        except LockedFile as error:
            locked = error
        await trio.lowlevel.checkpoint_if_cancelled()
        raise locked

    # --- in the thread -------------------------------------------------------------------------------------------

    def _serve(self) -> None:
        while True:
            if jobs := self._take():
                self._do(jobs)
                continue
            try:
                self._bell.get(timeout=IDLE)
            except queue.Empty:
                with self._lock:
                    if not self._jobs:
                        self.running = False
                        return

    def _take(self) -> list[_Job]:
        """Return the jobs for the next transaction; a job that closes the database is returned alone."""
        jobs: list[_Job] = []
        with self._lock:
            while self._jobs and len(jobs) < TOGETHER and not (jobs and self._jobs[0].work is None):
                jobs.append(self._jobs.popleft())
                if jobs[-1].work is None:
                    break
        return jobs

    def _do(self, jobs: list[_Job]) -> None:
        if jobs[0].work is None:
            jobs[0].done(outcome.capture(self._close))
            return
        groups = [jobs]
        while groups:
            group = groups.pop(0)
            try:
                values = self._transact(group)
            except LockedFile as exc:
                # Only jobs whose deadline has passed fail; the others are tried again with the time that each has left.
                now = time.monotonic()
                late = [job for job in group if job.deadline <= now]
                for job in late:
                    job.done(outcome.Error(LockedFile(*exc.args)))
                if remaining := [job for job in group if job not in late]:
                    groups.insert(0, remaining)
            except Exception as exc:
                if len(group) == 1:
                    group[0].done(outcome.Error(exc))
                else:
                    # The whole group was rolled back. Each job now gets a transaction, so only those at fault fail.
                    groups = [[job] for job in group]
            else:
                for job, value in zip(group, values, strict=True):
                    job.done(outcome.Value(value))

    def _transact(self, jobs: list[_Job]) -> list[Any]:
        deadline = min(time.monotonic() + PATIENCE, *(job.deadline for job in jobs))
        if self._file is None:
            file = SqliteFile.at(self._path, reading=self._reading)
            file.open(self._prepare, deadline - time.monotonic())
            self._file = file
        works = [job.work for job in jobs if job.work is not None]
        return self._file.transact(works, deadline - time.monotonic(), self._synchronous)

    def _close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.close()
