"""Processes that share tasks in a file and are killed or stopped: every task ends, and no finished step runs again.

``python -m tests.killed_tasks --tasks 300 --seed 1`` has three processes run tasks of ten steps and a question. One
after the other is killed and replaced, or stopped for longer than its leases last. Each step writes to a ledger when it
begins, and its value says which of its runs has come into the journal. Triggers in the file log who writes to it.

The exit status is 1 if a step ran again whose end was in the journal, or ran again without an interruption; if a run
stopped itself although its process had lost no time; if a task was taken over too late, or did not end; or if a process
wrote to a task that was another's, as one may that was stopped.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import os
import random
import signal
import sqlite3
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import attrs
import trio
from pydantic import BaseModel

from tests import forks
from trio_mcp import Answers, Client, Context, Server
from trio_mcp.extensions import TaskOptions, TaskPolicy, Tasks
from trio_mcp.stores import SqliteStores

__all__ = ["Trial"]

T = TypeVar("T")

PROCESSES = 3
STEPS = 10
QUESTION = 5
"""The step before which a task asks."""

LEASE = 4.0
"""Seconds; chosen: a run stops itself when a renewal is late by a third of it, as on a machine that is too busy."""
LATE = LEASE + 1.0
"""Seconds within which a lost task is taken over, and as many more as its new process has lost meanwhile."""
LOCKED = 0.5
"""Seconds for which the file is locked if a process was stopped inside a transaction; chosen: others wait so long."""
NET = 900
"""Seconds. Against a hang only."""

LOG = """
CREATE TABLE writes (id INTEGER PRIMARY KEY, at REAL, pid INTEGER, task INTEGER, was TEXT, token TEXT);
CREATE TRIGGER added AFTER INSERT ON tasks BEGIN
    INSERT INTO writes (at, pid, task, was, token) VALUES (clock(), writer(), new.id, '', new.token); END;
CREATE TRIGGER changed AFTER UPDATE ON tasks BEGIN
    INSERT INTO writes (at, pid, task, was, token) VALUES (clock(), writer(), new.id, old.token, new.token); END;
CREATE TRIGGER noted AFTER INSERT ON entries BEGIN
    INSERT INTO writes (at, pid, task, was, token)
    SELECT clock(), writer(), id, token, token FROM tasks WHERE id = new.task; END;
"""
"""Each write to a task or its journal, with the lease before and after it. The functions are those of the writer."""


class WatchedStores(SqliteStores):
    """Stores that tell the triggers of the file who writes.

    Args:
        path: The file.
        waited: Called with the time at which a call began, when it has ended.
    """

    def __init__(self, path: str | Path, waited: Callable[[float], object] = lambda since: None) -> None:
        super().__init__(path)
        self._waited = waited

    def _prepare(self, connection: sqlite3.Connection) -> None:
        super()._prepare(connection)
        connection.create_function("writer", 0, os.getpid)
        connection.create_function("clock", 0, time.monotonic)

    async def _read(self, work: Callable[..., T]) -> T:
        since = time.monotonic()
        try:
            return await super()._read(work)
        finally:
            self._waited(since)

    async def _write(self, work: Callable[..., T | Exception | None]) -> T:
        since = time.monotonic()
        try:
            return await super()._write(work)
        finally:
            self._waited(since)


# --- a process --------------------------------------------------------------------------------------------------------


class Answer(BaseModel):
    text: str


async def _live(*arguments: str) -> None:
    """Run tasks until killed, after having begun some; print the process id, and the id of each task."""
    path, ledger, first, count, pause = arguments
    file = os.open(ledger, os.O_APPEND | os.O_WRONLY)

    def write(*words: object) -> float:
        now = time.monotonic()
        os.write(file, f"{now!r} {os.getpid()} {' '.join(map(str, words))}\n".encode())
        return now

    def lost(since: float) -> None:
        if time.monotonic() - since > 0.002:
            write("lost", repr(since))

    async def watch() -> None:
        """Write down when this process got no time."""
        while True:
            due = time.monotonic() + 0.02
            await trio.sleep(0.02)
            lost(due)

    server = Server("studio", stores=WatchedStores(path, lost), extensions=[Tasks(TaskOptions(lease=LEASE))])

    @server.tool(task=TaskPolicy(after=0, on_loss="rerun", max_takeovers=10_000))
    async def work(number: int, ctx: Context) -> str:
        async def do(step: int) -> list[float]:
            at = write("begin", number, step)
            await trio.sleep(float(pause))
            return [os.getpid(), at]

        try:
            for step in range(STEPS):
                if step == QUESTION:
                    await ctx.elicit("Go on?", Answer, key="go")
                try:
                    await ctx.once(f"step-{step}", do, step)
                except trio.Cancelled:  # the lease is another's, or was not renewed in time
                    write("cancelled", number, step)
                    raise
            return f"done {number}"
        finally:
            write("left", number)

    answers: Any = Answers(elicitation=lambda params: None)  # the answers come from elsewhere
    os.write(1, f"{os.getpid()}\n".encode())
    async with Client(server, extensions=[Tasks()], answers=answers) as client, trio.open_nursery() as nursery:
        nursery.start_soon(watch)
        for number in range(int(first), int(first) + int(count)):
            result = await client.request("tools/call", {"name": "work", "arguments": {"number": number}})
            os.write(1, f"{result['taskId']}\n".encode())
        os.write(1, b"ready\n")


# --- what looks after them --------------------------------------------------------------------------------------------


@attrs.define
class Life:
    """A process.

    Attributes:
        process: The stand-in of the process; see `tests.forks`.
        pid: The process itself.
        ids: The ids of the tasks that it has begun.
    """

    process: trio.Process
    pid: int
    ids: list[str]


@attrs.frozen
class Interruption:
    """A process was killed or stopped.

    Attributes:
        kind: ``"killed"`` or ``"stopped"``.
        pid: The process.
        at: When.
        held: The leases that it held: the token by the number of the task's row.
    """

    kind: str
    pid: int
    at: float
    held: Mapping[int, str]


@attrs.define
class Trial:
    """One file, and those that use it.

    Attributes:
        folder: Where the file is; empty.
        seed: Who is killed or stopped, and when.
        tasks: How many tasks there are.
        pause: Seconds that a step takes.
        turns: How many processes are killed or stopped, if the tasks last so long.
        faults: What went wrong.
        interruptions: Who was killed or stopped.
        figures: What was seen.
    """

    folder: Path
    seed: int
    tasks: int = 20
    pause: float = 0.8
    turns: int = 4
    faults: list[str] = attrs.Factory(list)
    interruptions: list[Interruption] = attrs.Factory(list)
    figures: dict[str, Any] = attrs.Factory(dict)
    _lives: list[Life] = attrs.Factory(list)
    _all: list[trio.Process] = attrs.Factory(list)
    _over: bool = False

    @property
    def path(self) -> Path:
        return self.folder / "studio.db"

    @property
    def ledger(self) -> Path:
        return self.folder / "ledger"

    async def run(self) -> None:
        """Run all tasks to their end, and check what was written."""
        self.ledger.touch()
        share = [len(range(self.tasks)[place::PROCESSES]) for place in range(PROCESSES)]
        try:
            with trio.move_on_after(NET) as scope:
                async with WatchedStores(self.path) as stores:
                    connection = sqlite3.connect(self.path)
                    connection.executescript(LOG)
                    connection.close()
                    for place, count in enumerate(share):
                        self._lives.append(await self._begin(sum(share[:place]), count))
                    ids = [each for life in self._lives for each in life.ids]
                    async with trio.open_nursery() as nursery:
                        nursery.start_soon(self._interrupt)
                        await self._finish(stores, ids)
                        self._over = True
            if scope.cancelled_caught:
                self.faults.append(f"not every task has ended after {NET} s")
            self._look_for_the_dead()
        finally:
            # The end of a stand-in is that of its process, also of one that is stopped.
            for each in self._all:
                each.kill()
            with trio.CancelScope(shield=True):
                for each in self._all:
                    await each.wait()
        self.faults += Check(self).faults

    async def _begin(self, first: int, count: int) -> Life:
        """Start a process that begins some tasks, and wait until it has."""
        arguments = ["live", str(self.path), str(self.ledger), str(first), str(count), str(self.pause)]
        imported = (*forks.LOADED, "trio_mcp.extensions", "trio_mcp.stores")
        with (self.folder / "errors.txt").open("ab") as errors:
            process = await trio.lowlevel.open_process(
                [*forks.command("tests.killed_tasks", *imported), *arguments], stdout=-1, stderr=errors
            )
        self._all.append(process)
        assert process.stdout is not None
        text = b""
        while not text.endswith(b"ready\n"):
            chunk = await process.stdout.receive_some()
            if not chunk:
                raise AssertionError((self.folder / "errors.txt").read_text())
            text += chunk
        pid, *ids, _ = text.decode().split()
        return Life(process, int(pid), ids)

    def _look_for_the_dead(self) -> None:
        for life in self._lives:
            if life.process.poll() is not None:
                self.faults.append(f"process {life.pid} has ended: {(self.folder / 'errors.txt').read_text()}")

    def query(self, statement: str) -> list[Any]:
        """Return rows of the file."""
        connection = sqlite3.connect(self.path)
        try:
            return connection.execute(statement).fetchall()
        finally:
            connection.close()

    def lines(self) -> Iterator[tuple[float, int, str, list[str]]]:
        """Return what the ledger says: when, which process, what, and more."""
        for line in self.ledger.read_text().splitlines():
            at, pid, what, *more = line.split()
            yield float(at), int(pid), what, more

    # --- interruptions -----------------------------------------------------------------------------------------------

    async def _interrupt(self) -> None:
        """Kill or stop one process after the other."""
        rng = random.Random(self.seed)
        while not self._over and len(self.interruptions) < self.turns:
            await trio.sleep(rng.uniform(0.5, 1.5))
            if busy := [life for life in self._lives if self._held(life)]:
                interrupt = self._stop if len(self.interruptions) % 2 else self._kill
                await interrupt(rng.choice(busy))

    def _held(self, life: Life) -> dict[int, str]:
        """Return the leases that a process has."""
        return dict(
            self.query(
                "SELECT tasks.id, tasks.token FROM tasks JOIN writes ON tasks.token = writes.token "
                f"WHERE tasks.token != '' AND writes.was != writes.token AND pid = {life.pid}"
            )
        )

    async def _kill(self, life: Life) -> None:
        os.kill(life.pid, signal.SIGKILL)
        at = time.monotonic()
        await life.process.wait()
        self.interruptions.append(Interruption("killed", life.pid, at, self._held(life)))
        self._lives[self._lives.index(life)] = await self._begin(0, 0)
        await self._taken_over()

    async def _stop(self, life: Life) -> None:
        """Stop a process until its tasks were taken over, and wait until its runs of them have ended."""
        while True:
            os.kill(life.pid, signal.SIGSTOP)
            at = time.monotonic()
            if await trio.to_thread.run_sync(self._is_free):
                break
            # It was stopped inside a transaction, which no lease can help.
            os.kill(life.pid, signal.SIGCONT)
            await trio.sleep(0.01)
        self.interruptions.append(Interruption("stopped", life.pid, at, self._held(life)))
        running = self._running(life)
        await trio.sleep(LEASE)
        await self._taken_over()
        os.kill(life.pid, signal.SIGCONT)
        while not running <= self._left(life, at):  # noqa: ASYNC110 - only the ledger knows
            await trio.sleep(0.1)
        await trio.sleep(0.5)  # the process may do wrong even now

    async def _taken_over(self) -> None:
        """Wait until each lease of the process that was interrupted last is over."""
        tokens = set(self.interruptions[-1].held.values())
        while tokens & {token for (token,) in self.query("SELECT token FROM tasks")}:  # noqa: ASYNC110 - only the file
            await trio.sleep(0.1)

    def _running(self, life: Life) -> set[str]:
        """Return the numbers of the tasks that run in a process."""
        running = set()
        for _, pid, what, more in self.lines():
            if (pid, what) == (life.pid, "begin"):
                running.add(more[0])
            elif (pid, what) == (life.pid, "left"):
                running.discard(more[0])
        return running

    def _left(self, life: Life, after: float) -> set[str]:
        """Return the numbers of the tasks of which a run in a process has ended after a time."""
        return {more[0] for at, pid, what, more in self.lines() if (pid, what) == (life.pid, "left") and at > after}

    def _is_free(self) -> bool:
        """Return whether the file can be locked."""
        connection = sqlite3.connect(self.path, timeout=LOCKED, isolation_level=None)
        try:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("ROLLBACK")
        except sqlite3.OperationalError:
            return False
        else:
            return True
        finally:
            connection.close()

    # --- the client --------------------------------------------------------------------------------------------------

    async def _finish(self, stores: WatchedStores, ids: list[str]) -> None:
        """Answer the questions, and wait for the tasks to end."""
        left = {hashlib.sha256(each.encode()).hexdigest(): each for each in ids}
        # Its own server offers no such tool, so it takes no task.
        async with Client(Server("studio", stores=stores, extensions=[Tasks()]), extensions=[Tasks()]) as client:
            while left:
                await trio.sleep(0.2)
                for key, status in self.query("SELECT key, status FROM tasks WHERE status != 'working'"):
                    if status == "input_required":
                        responses = {"go": {"action": "accept", "content": {"text": "yes"}}}
                        await client.request("tasks/update", {"taskId": left[key], "inputResponses": responses})
                    elif (task_id := left.pop(key, None)) is not None:
                        state = await client.request("tasks/get", {"taskId": task_id})
                        if status != "completed" or state["result"].get("isError"):
                            self.faults.append(f"a task has ended as {status}: {state.get('statusMessage')}")


# --- what is said about them ------------------------------------------------------------------------------------------


class Check:
    """What the ledger and the file say about a trial that is over.

    Attributes:
        faults: What went wrong.
    """

    def __init__(self, trial: Trial) -> None:
        self.faults: list[str] = []
        self._trial = trial
        self._numbers = {
            row: str(json.loads(body)[0]["number"]) for row, body in trial.query("SELECT id, body FROM tasks")
        }
        self._begun: dict[tuple[str, str], list[tuple[int, float]]] = defaultdict(list)
        self._cancelled: list[tuple[float, int, str, str]] = []
        self._losses: dict[int, list[tuple[float, float]]] = defaultdict(list)
        for at, pid, what, more in trial.lines():
            if what == "begin":
                self._begun[more[0], more[1]].append((pid, at))
            elif what == "cancelled":
                self._cancelled.append((at, pid, more[0], more[1]))
            elif what == "lost":
                self._losses[pid].append((float(more[0]), at))
        for each in self._losses.values():
            each.sort()
        self._check_steps()
        self._check_cancellations()
        self._check_takeovers()
        self._check_writers()

    def _lost(self, pid: int, since: float, until: float) -> float:
        """Return for how many seconds of a time a process got no time, or waited for the file."""
        total = 0.0
        for begun, ended in self._losses[pid]:
            begun, ended = max(begun, since), min(ended, until)
            if ended > begun:
                total += ended - begun
                since = ended  # what overlaps counts once
        return total

    def _check_steps(self) -> None:
        """No step runs again whose end is in the journal; and none without an interruption between its runs."""
        trial = self._trial
        stored = {
            (self._numbers[task], key.removeprefix("once:step-")): tuple(json.loads(value))
            for task, key, value in trial.query("SELECT task, key, value FROM entries WHERE key LIKE 'once:%'")
        }
        for number in range(trial.tasks):
            for step in range(STEPS):
                key = (str(number), str(step))
                runs = self._begun[key]
                if key not in stored:
                    self.faults.append(f"task {number} has not stored its step {step}")
                elif stored[key] not in runs:
                    self.faults.append(f"task {number} has a value of step {step} that no run has returned")
                elif stored[key] != runs[-1]:
                    self.faults.append(f"task {number} ran step {step} again, whose end was in the journal")
                for (pid, at), (_, again) in itertools.pairwise(runs):
                    if not self._interrupted(pid, key, at, again):
                        self.faults.append(f"task {number} ran step {step} again without an interruption")
        trial.figures["steps that ran again"] = sum(len(runs) - 1 for runs in self._begun.values() if runs)

    def _interrupted(self, pid: int, key: tuple[str, str], since: float, until: float) -> bool:
        return any(each.pid == pid and since <= each.at <= until for each in self._trial.interruptions) or any(
            (who, number, step) == (pid, *key) and since <= at <= until for at, who, number, step in self._cancelled
        )

    def _check_cancellations(self) -> None:
        """A run ends early only after its process was stopped, or lost so much time that a renewal was late."""
        left = list(self._cancelled)
        for each in self._trial.interruptions:
            for task in each.held:
                found = [one for one in left if one[0] > each.at and one[1:3] == (each.pid, self._numbers[task])]
                if each.kind == "stopped" and found:
                    left.remove(found[0])
        for at, pid, number, step in left:
            # A renewal is made when a third of the lease is over, and the run stops itself after two.
            if self._lost(pid, at - LEASE * 2 / 3, at) < LEASE / 6:
                self.faults.append(f"task {number} stopped itself in step {step}, though its process lost no time")
        if len(left) > self._trial.tasks:
            self.faults.append(f"runs have stopped themselves {len(left)} times")
        self._trial.figures["runs that stopped themselves"] = len(left)

    def _check_takeovers(self) -> None:
        """Each task is taken over in time."""
        ends: dict[str, tuple[float, int]] = {}
        for at, pid, was in self._trial.query("SELECT at, pid, was FROM writes WHERE was != token ORDER BY id"):
            ends.setdefault(was, (at, pid))
        took, most = [0.0], 0.0
        for each in self._trial.interruptions:
            for task, token in each.held.items():
                number = self._numbers[task]
                if token not in ends:
                    self.faults.append(f"task {number} was not taken over")
                    continue
                at, pid = ends[token]
                seconds, lost = at - each.at, self._lost(pid, each.at + LEASE, at)
                took.append(seconds)
                most = max(most, lost)
                if seconds > LATE + lost:
                    self.faults.append(
                        f"task {number} of a {each.kind} process was taken over after {seconds:.2f} s by one that had "
                        f"lost {lost:.2f} s"
                    )
        for kind in ("killed", "stopped"):
            held = [len(each.held) for each in self._trial.interruptions if each.kind == kind]
            if not sum(held):
                self.faults.append(f"no process was {kind} while it ran tasks")
            self._trial.figures[f"processes {kind}"] = len(held)
            self._trial.figures[f"their tasks ({kind})"] = sum(held)
        self._trial.figures["slowest takeover"] = f"{max(took):.2f} s"
        self._trial.figures["time lost in it"] = f"{most:.2f} s"

    def _check_writers(self) -> None:
        """Only the process that holds a task writes to it; the client's does while no process holds it."""
        holders: dict[str, int] = {"": os.getpid()}
        writes = self._trial.query("SELECT pid, task, was, token FROM writes ORDER BY id")
        for pid, task, was, token in writes:
            if token not in ("", was):
                holders[token] = pid
            elif holders[was] != pid:
                self.faults.append(f"process {pid} wrote to task {self._numbers[task]}, which {holders[was]} held")
        self._trial.figures["writes"] = len(writes)


def main() -> int:
    """Run the command."""
    if sys.argv[1:2] == ["live"]:
        trio.run(_live, *sys.argv[2:])
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=300)
    parser.add_argument("--pause", type=float, default=3.0)
    parser.add_argument("--turns", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        trial = Trial(Path(folder), options.seed, options.tasks, options.pause, options.turns)
        trio.run(partial(trial.run))
    for fault in trial.faults[:40]:
        print(fault, file=sys.stderr)
    figures = "; ".join(f"{name}: {value}" for name, value in trial.figures.items())
    print(f"seed {options.seed}: {options.tasks} tasks in {time.monotonic() - began:.0f} s; {figures}")
    print(f"{len(trial.faults)} faults")
    return int(bool(trial.faults))


if __name__ == "__main__":
    sys.exit(main())
