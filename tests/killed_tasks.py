"""Processes that share tasks in a file and are killed or stopped: every task ends, and what is done stays done.

``python -m tests.killed_tasks --tasks 300 --seed 1`` has three processes run tasks of ten steps and a question. One
after the other is killed and replaced, or stopped for longer than its leases last. Each step writes to a ledger when it
begins and when its end is in the journal. The exit status is 1 if a step ran again whose end was in the journal, if an
interrupted one ran again more often than its processes were interrupted, if a task was taken over too late or did not
end, or if a process that was stopped has changed something afterwards.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sqlite3
import sys
import tempfile
import time
from collections import Counter, defaultdict
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import trio

from tests import forks

__all__ = ["LEASE", "Trial"]

PROCESSES = 3
STEPS = 10
QUESTION = 5
"""The step before which a task asks."""

LEASE = 1.5
LATE = LEASE + 1.0
"""Seconds within which a lost task is taken over."""
BUSY = 1.0
"""Seconds that a busy machine may add to that; chosen."""
STOPPED = 2 * LEASE
"""Seconds for which a process is stopped."""
NET = 600
"""Seconds. Against a hang only."""


# --- a process --------------------------------------------------------------------------------------------------------


async def _live(path: str, ledger: str, first: str, count: str, pause: str) -> None:
    """Run tasks until killed, after having begun some; print the id of each."""
    from pydantic import BaseModel

    from trio_mcp import Answers, Client, Context, Server
    from trio_mcp.extensions import TaskOptions, TaskPolicy, Tasks
    from trio_mcp.stores import SqliteStores

    class Answer(BaseModel):
        text: str

    file = os.open(ledger, os.O_APPEND | os.O_WRONLY)

    def write(*words: object) -> None:
        os.write(file, (" ".join(map(str, (time.monotonic(), os.getpid(), *words))) + "\n").encode())

    server = Server("studio", stores=SqliteStores(path), extensions=[Tasks(TaskOptions(lease=LEASE))])

    @server.tool(task=TaskPolicy(after=0, on_loss="rerun", max_takeovers=10_000))
    async def work(number: int, ctx: Context) -> str:
        done = []

        async def do(step: int) -> int:
            write("begin", number, step)
            await trio.sleep(float(pause))
            done.append(step)
            return step

        for step in range(STEPS):
            if step == QUESTION:
                await ctx.elicit("Go on?", Answer, key="go")
            try:
                await ctx.once(f"step-{step}", do, step)
            except trio.Cancelled:  # on a busy machine the lease was not renewed in time, so the run stops itself
                write("slow", number, step)
                raise
            if step in done:
                write("kept", number, step)
        return f"done {number}"

    async def watch() -> None:
        """Tell if this process got no time for so long that it may have lost its leases."""
        while True:
            before = time.monotonic()
            await trio.sleep(0.1)
            if time.monotonic() - before > LEASE / 4:
                write("slow", 0, 0)

    answers: Any = Answers(elicitation=lambda params: None)  # the answers come from elsewhere
    async with Client(server, extensions=[Tasks()], answers=answers) as client, trio.open_nursery() as nursery:
        nursery.start_soon(watch)
        for number in range(int(first), int(first) + int(count)):
            result = await client.request("tools/call", {"name": "work", "arguments": {"number": number}})
            os.write(1, f"{result['taskId']}\n".encode())
        os.write(1, b"ready\n")


# --- what looks after them --------------------------------------------------------------------------------------------


@attrs.define
class Trial:
    """One file, and those that use it.

    Attributes:
        folder: Where the file is; empty.
        seed: Who is killed or stopped, and when.
        tasks: How many tasks there are.
        pause: Seconds that a step takes.
        faults: What went wrong.
        interrupted: How often each process was killed, stopped or got no time.
        killed: When each process was killed.
    """

    folder: Path
    seed: int
    tasks: int = 20
    pause: float = 2.0
    faults: list[str] = attrs.Factory(list)
    interrupted: Counter[int] = attrs.Factory(Counter)
    killed: dict[int, float] = attrs.Factory(dict)
    _processes: list[trio.Process] = attrs.Factory(list)
    _all: list[trio.Process] = attrs.Factory(list)
    _ids: list[str] = attrs.Factory(list)
    _ended: trio.Event = attrs.Factory(trio.Event)

    @property
    def path(self) -> Path:
        return self.folder / "studio.db"

    @property
    def ledger(self) -> Path:
        return self.folder / "ledger"

    async def run(self) -> None:
        """Run all tasks to their end, and check the ledger."""
        self.ledger.touch()
        share = [len(range(self.tasks)[place::PROCESSES]) for place in range(PROCESSES)]
        try:
            for place, count in enumerate(share):
                self._processes.append(await self._begin(sum(share[:place]), count))
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._interrupt)
                with trio.move_on_after(NET) as scope:
                    await self._finish_all()
                if scope.cancelled_caught:
                    self.faults.append("not every task has ended")
                nursery.cancel_scope.cancel()
        finally:
            for each in self._all:
                each.kill()
            with trio.CancelScope(shield=True):
                for each in self._all:
                    await each.wait()
        self._check()

    async def _begin(self, first: int, count: int) -> trio.Process:
        """Start a process that begins some tasks, and wait until it has."""
        arguments = ["live", str(self.path), str(self.ledger), str(first), str(count), str(self.pause)]
        with (self.folder / "errors.txt").open("ab") as errors:
            process = await trio.lowlevel.open_process(
                [*forks.command("tests.killed_tasks", *forks.LOADED), *arguments], stdout=-1, stderr=errors
            )
        self._all.append(process)
        assert process.stdout is not None
        text = b""
        while not text.endswith(b"ready\n"):
            chunk = await process.stdout.receive_some()
            if not chunk:
                raise AssertionError((self.folder / "errors.txt").read_text())
            text += chunk
        self._ids += text.decode().split("\n")[:-2]
        return process

    async def _interrupt(self) -> None:
        """Kill or stop one process after the other."""
        rng = random.Random(self.seed)
        for turn in range(10**6):
            await trio.sleep(rng.uniform(0.5, 1.5))
            place = turn % PROCESSES
            process = self._processes[place]
            self.interrupted[process.pid] += 1
            if turn % 2:
                await self._stop(process)
            else:
                process.kill()
                self.killed[process.pid] = time.monotonic()
                self._processes[place] = await self._begin(0, 0)
            await trio.sleep(LATE + BUSY)  # so that it is known who must take over

    async def _stop(self, process: trio.Process) -> None:
        while True:
            process.send_signal(signal.SIGSTOP)
            if await trio.to_thread.run_sync(self._is_free):
                break
            # It was stopped inside a transaction, which no lease can help.
            process.send_signal(signal.SIGCONT)
            await trio.sleep(0.01)
        try:
            await trio.sleep(STOPPED)
        finally:
            process.send_signal(signal.SIGCONT)

    def _is_free(self) -> bool:
        connection = sqlite3.connect(self.path, timeout=LEASE / 5, isolation_level=None)
        try:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("ROLLBACK")
        except sqlite3.OperationalError:
            return False
        else:
            return True
        finally:
            connection.close()

    async def _finish_all(self) -> None:
        """Answer the questions, and wait for the tasks to end."""
        from trio_mcp import Client, Server
        from trio_mcp.extensions import Tasks
        from trio_mcp.stores import SqliteStores

        server = Server("studio", stores=SqliteStores(self.path), extensions=[Tasks()])
        left = list(self._ids)
        async with Client(server, extensions=[Tasks()]) as client:
            while left:
                for task_id in tuple(left):
                    state = await client.request("tasks/get", {"taskId": task_id})
                    if state["status"] == "input_required":
                        responses = {"go": {"action": "accept", "content": {"text": "yes"}}}
                        await client.request("tasks/update", {"taskId": task_id, "inputResponses": responses})
                    elif state["status"] != "working":
                        left.remove(task_id)
                        if state["status"] != "completed" or "isError" in state["result"]:
                            self.faults.append(f"a task has ended as {state['status']}: {state.get('statusMessage')}")
                await trio.sleep(0.3)

    def _check(self) -> None:
        lines = [line.split() for line in self.ledger.read_text().splitlines()]
        begun: dict[tuple[str, str], list[int]] = defaultdict(list)
        kept: dict[tuple[str, str], int] = {}
        for _, pid, what, *_ in lines:
            self.interrupted[int(pid)] += what == "slow"
        for _, pid, what, *step in lines:
            key = (step[0], step[1])
            if what == "begin":
                if key in kept:
                    self.faults.append(f"step {key} ran again, although its end was in the journal")
                begun[key].append(int(pid))
            elif what == "kept":
                if key in kept:
                    self.faults.append(f"the end of step {key} came into the journal twice")
                if begun[key][-1] != int(pid):
                    self.faults.append(f"process {pid} wrote the end of step {key}, which another one had taken over")
                kept[key] = int(pid)
        for key, pids in begun.items():
            allowed = 1 + sum(self.interrupted[pid] for pid in set(pids))
            if len(pids) > allowed:
                self.faults.append(f"step {key} ran {len(pids)} times, and was interrupted {allowed - 1} times")
        for pid, when in self.killed.items():
            self._check_takeover(lines, str(pid), when)

    def _check_takeover(self, lines: list[list[str]], pid: str, when: float) -> None:
        """Check that the steps that a killed process had begun were begun elsewhere in time."""
        left = {(number, step) for _, who, what, number, step in lines if who == pid and what == "begin"}
        left -= {(number, step) for _, who, what, number, step in lines if who == pid and what == "kept"}
        for at, who, what, number, step in lines:
            if what == "begin" and who != pid and float(at) > when and (number, step) in left:
                left.discard((number, step))
                if float(at) - when > LATE + BUSY:
                    self.faults.append(f"step {number} {step} was taken over after {float(at) - when:.1f} s")


def main() -> int:
    """Run the command."""
    if sys.argv[1:2] == ["live"]:
        trio.run(_live, *sys.argv[2:])
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=300)
    parser.add_argument("--pause", type=float, default=4.0)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        trial = Trial(Path(folder), options.seed, options.tasks, options.pause)
        trio.run(partial(trial.run))
    for fault in trial.faults:
        print(fault, file=sys.stderr)
    print(f"seed {options.seed}: {options.tasks} tasks, {sum(trial.interrupted.values())} interruptions")
    return int(bool(trial.faults))


if __name__ == "__main__":
    sys.exit(main())
