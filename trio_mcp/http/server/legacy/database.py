"""An SQLite database in a thread that stays: what waits together becomes one transaction."""

from __future__ import annotations

import contextlib
import queue
import sqlite3
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

import attrs
import outcome
import trio

__all__ = ["Database"]

T = TypeVar("T")

TOGETHER = 64
"""How many operations one transaction may hold (chosen), so that the first of them need not wait for any number."""

IDLE = 10.0
"""Seconds without work after which the thread ends (chosen): a store need not be closed."""


@attrs.define(eq=False)
class _Job:
    """An operation, and the task that waits for it; without ``work``, the database is to be closed."""

    work: Callable[[sqlite3.Connection], Any] | None
    task: trio.lowlevel.Task = attrs.Factory(trio.lowlevel.current_task)
    token: trio.lowlevel.TrioToken = attrs.Factory(trio.lowlevel.current_trio_token)

    def done(self, result: outcome.Outcome[Any]) -> None:
        """Wake the task. Called in the thread."""
        with contextlib.suppress(trio.RunFinishedError):  # only after a crash of Trio, as the task can't leave before
            self.token.run_sync_soon(trio.lowlevel.reschedule, self.task, result)


class Database:
    """A connection to an SQLite database, and the thread that opens, uses and closes it.

    `trio.to_thread` would cost two thirds of an operation: a thread that stays has less to set up for each.

    Args:
        open: Opens the database, with ``check_same_thread=False``. Called in the thread, when first needed.

    Attributes:
        running: Whether there is a thread.
    """

    def __init__(self, open: Callable[[], sqlite3.Connection]) -> None:
        self._open = open
        self._connection: sqlite3.Connection | None = None
        self._lock = threading.Lock()  # for `_jobs` and `running`; held for moments
        self._jobs: deque[_Job] = deque()
        self.running = False
        self._bell: queue.SimpleQueue[None] = queue.SimpleQueue()  # rings once for each job

    async def run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Return what a function returns, called in the thread and in a transaction, which its failure undoes.

        The function may be called twice: if another one fails in the same transaction, each gets one of its own.

        Raises:
            Exception: What opening the database, the function or the transaction has raised.

        If it is cancelled before the thread has taken the function, that is not called. Afterwards, it waits for the
        end of the transaction, and returns.
        """
        result: T = await self._submit(work)
        return result

    async def close(self) -> None:
        """Close the database after what waits; `run` opens it again."""
        await self._submit(None)

    async def _submit(self, work: Callable[[sqlite3.Connection], Any] | None) -> Any:
        await trio.lowlevel.checkpoint_if_cancelled()
        job = _Job(work)
        with self._lock:
            self._jobs.append(job)
            start, self.running = not self.running, True
        if not start:
            self._bell.put(None)
        else:
            try:
                # A thread of Trio's: it doesn't keep the process alive, and serves others afterwards.
                trio.lowlevel.start_thread_soon(self._serve, lambda _: None, "event store")
            except BaseException:
                with self._lock:
                    self._jobs.remove(job)
                    self.running = False
                raise

        def abort(_: object) -> trio.lowlevel.Abort:
            with self._lock:
                if job not in self._jobs:
                    return trio.lowlevel.Abort.FAILED
                self._jobs.remove(job)
            return trio.lowlevel.Abort.SUCCEEDED

        return await trio.lowlevel.wait_task_rescheduled(abort)

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
        """Return the jobs for the next transaction; closing stands alone."""
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
        results: list[outcome.Outcome[Any]]
        try:
            results = [outcome.Value(value) for value in self._transact(jobs)]
        except Exception as exc:
            # All of it was undone. One by one, each shows what it can do.
            results = [outcome.Error(exc)] if len(jobs) == 1 else [outcome.capture(self._alone, job) for job in jobs]
        for job, result in zip(jobs, results, strict=True):
            job.done(result)

    def _alone(self, job: _Job) -> Any:
        return self._transact([job])[0]

    def _transact(self, jobs: list[_Job]) -> list[Any]:
        if self._connection is None:
            self._connection = self._open()
        with self._connection as connection:
            return [job.work(connection) for job in jobs if job.work is not None]

    def _close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
