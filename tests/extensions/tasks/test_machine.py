"""Three processes on one store, in every order of calls, answers, crashes and failures that Hypothesis finds.

A ledger outside the engine records which steps have begun and ended, and which are in the journal. Invariants:

- a step in the journal never runs again, and no two runs of a task work at the same time;
- only the holder of a lease writes under it;
- a task that has ended stays as it is, and every task ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import attrs
import trio
from hypothesis import given, settings, strategies as st
from pydantic import BaseModel
from trio.testing import MockClock

from tests.effort import examples
from tests.extensions.tasks.processes import ENDED, LEASE, Door, Process, run_process, shared, start
from trio_mcp import Context, McpError, Server
from trio_mcp._nursery import background_nursery
from trio_mcp.extensions import TaskPolicy
from trio_mcp.stores import Claim, JournalEntry, StoredTask
from trio_mcp.types import INVALID_PARAMS

PROCESSES = 3

Action: TypeAlias = tuple[Any, ...]

WHICH = st.integers(0, PROCESSES - 1)
TASK = st.integers(0, 10)
SECONDS = st.sampled_from([0.1, 4.0, 11.0, 16.0, 40.0])
CALLS = st.sampled_from(["renew", "*", "put_task", "note", "claim_tasks"])
ACTIONS = st.one_of(
    st.tuples(st.just("create"), WHICH, st.sampled_from(["rerun", "fail", "late", "short"])),
    st.tuples(st.just("look"), WHICH, TASK),
    st.tuples(st.just("update"), WHICH, TASK),
    st.tuples(st.just("cancel"), WHICH, TASK),
    st.tuples(st.just("crash"), WHICH),
    st.tuples(st.just("end"), WHICH),
    st.tuples(st.just("shut"), WHICH, CALLS, st.sampled_from([4.0, 16.0, 40.0])),
    st.tuples(st.just("wait"), SECONDS),
)

POLICIES = {
    "rerun": TaskPolicy(after=0, on_loss="rerun", max_takeovers=100),
    "fail": TaskPolicy(after=0, on_loss="fail"),
    "late": TaskPolicy(after=5, on_loss="rerun", max_takeovers=1),
    "short": TaskPolicy(after=0, on_loss="rerun", ttl=40),
}


class Answer(BaseModel):
    text: str


@attrs.define(eq=False)
class Ledger:
    """The events of a test, as seen from outside the engine.

    Attributes:
        journaled: The steps that are in a journal.
        working: For each task, how many of its steps are under way.
        holders: The token of the lease of each task.
        faults: The broken invariants. An exception would become the result of a tool, or be logged.
    """

    journaled: set[str] = attrs.Factory(set)
    working: dict[int, int] = attrs.Factory(dict)
    holders: dict[str, str] = attrs.Factory(dict)
    faults: list[str] = attrs.Factory(list)

    async def step(self, number: int, name: str) -> str:
        self.check(name not in self.journaled, f"{name} runs again")
        self.check(not self.working.get(number), f"two runs of {number} work at the same time")
        self.working[number] = 1
        try:
            await trio.sleep(7)
        finally:
            self.working[number] = 0
        return name

    def check(self, holds: bool, what: str) -> None:
        if not holds:
            self.faults.append(what)

    def note(self, entries: Sequence[JournalEntry]) -> None:
        self.journaled |= {key.removeprefix("once:") for key, _ in entries}


class Watched(Door):
    """A door that records in the ledger the calls that succeed."""

    __slots__ = ("ledger",)

    async def add_task(self, task: StoredTask, entries: Sequence[JournalEntry] = (), **more: Any) -> StoredTask:
        added = await super().add_task(task, entries, **more)
        self.ledger.holders[task.key] = added.token
        self.ledger.note(entries)
        return added

    async def claim_tasks(self, *arguments: Any, **more: Any) -> Sequence[Claim]:
        claims = await super().claim_tasks(*arguments, **more)
        self.ledger.holders |= {claim.task.key: claim.task.token for claim in claims}
        return claims

    async def note(self, key: str, token: str, entry: JournalEntry) -> None:
        await super().note(key, token, entry)
        self.ledger.check(token == self.ledger.holders[key], f"{entry[0]} was noted without the lease")
        self.ledger.note([entry])

    async def put_task(
        self, task: StoredTask, entries: Sequence[JournalEntry] = (), *, token: str | None = None
    ) -> bool:
        done = await super().put_task(task, entries, token=token)
        if done:
            held = token is None or token == self.ledger.holders[task.key]
            self.ledger.check(held, "a task was changed without the lease")
            self.ledger.holders[task.key] = task.token
        return done


@attrs.define(eq=False)
class Machine:
    """The processes, and the tasks that their clients know."""

    nursery: trio.Nursery
    ledger: Ledger = attrs.Factory(Ledger)
    running: list[Process] = attrs.Factory(list)
    ids: list[str] = attrs.Factory(list)
    ended: dict[str, dict[str, Any]] = attrs.Factory(dict)
    stores: Any = attrs.Factory(shared)

    async def begin(self) -> Process:
        door = Watched(self.stores)
        door.ledger = self.ledger
        process: Process = await self.nursery.start(run_process, self.define, door, None)
        return process

    def define(self, server: Server) -> None:
        for name, policy in POLICIES.items():
            server.add_tool(self.work, name=name, task=policy)

    async def work(self, number: int, ctx: Context) -> str:
        for step in range(3):
            name = f"{number}-{step}"
            assert await ctx.once(name, self.ledger.step, number, name) == name
            self.ledger.journaled.add(name)
            await ctx.report_progress(step + 1, 4)
        found = await ctx.elicit("Go on?", Answer, key="go")
        name = f"{number}-last"
        await ctx.once(name, self.ledger.step, number, name)
        self.ledger.journaled.add(name)
        return found.data.text if found.data else ""

    async def act(self, action: Action) -> None:
        name, *arguments = action
        await getattr(self, f"do_{name}")(*arguments)

    async def do_create(self, which: int, tool: str) -> None:
        try:
            self.ids.append(await start(self.running[which].client, tool, number=len(self.ids)))
        except McpError:
            if not self.running[which].door.failed:
                raise
            self.ids.append("")  # its number is used up

    async def do_look(self, which: int, pick: int) -> None:
        state = await self._request(which, pick, "tasks/get")
        if state is None:
            return
        task_id = state["taskId"]
        assert task_id not in self.ended or self.ended[task_id] == state
        if state["status"] in ENDED:
            self.ended[task_id] = state

    async def do_update(self, which: int, pick: int) -> None:
        responses = {"go": {"action": "accept", "content": {"text": "yes"}}}
        await self._request(which, pick, "tasks/update", inputResponses=responses)

    async def do_cancel(self, which: int, pick: int) -> None:
        await self._request(which, pick, "tasks/cancel")

    async def _request(self, which: int, pick: int, method: str, **params: Any) -> dict[str, Any] | None:
        """Send a request about a task; return None if no task was made, or the store is away."""
        if not self.ids or not (task_id := self.ids[pick % len(self.ids)]):
            return None
        try:
            return await self.running[which].client.request(method, {"taskId": task_id, **params})
        except McpError as exc:
            if exc.code != INVALID_PARAMS and not self.running[which].door.failed:
                raise
            return None

    async def do_crash(self, which: int) -> None:
        self.running[which].crash()
        self.running[which] = await self.begin()

    async def do_end(self, which: int) -> None:
        self.running[which].end()
        self.running[which] = await self.begin()

    async def do_shut(self, which: int, call: str, seconds: float) -> None:
        self.running[which].door.shut.add(call)
        self.nursery.start_soon(self._open, self.running[which], call, seconds)

    async def _open(self, process: Process, call: str, seconds: float) -> None:
        await trio.sleep(seconds)
        if not process.scope.cancel_called:
            process.door.shut.discard(call)

    async def do_wait(self, seconds: float) -> None:
        await trio.sleep(seconds)

    async def everything_ends(self) -> None:
        """Answer all questions, with stores that work, and wait until every task has ended."""
        await trio.sleep(41)  # every door is open again
        left = {each for each in self.ids if each}
        with trio.fail_after(LEASE * 10):
            while left:
                for pick, task_id in enumerate(self.ids):
                    if task_id in left:
                        await self.do_update(0, pick)
                        await self.do_look(0, pick)
                        if task_id in self.ended or await self._request(0, pick, "tasks/get") is None:
                            left.discard(task_id)
                await trio.sleep(1)
        for pick in range(len(self.ids)):
            await self.do_look(1, pick)
        for held in [each for each in (await self._tasks()) if each is not None]:
            assert held.token == ""
        assert self.ledger.faults == []

    async def _tasks(self) -> list[StoredTask | None]:
        return [await self.stores.task(key) for key in self.ledger.holders]


async def _play(actions: list[Action]) -> None:
    async with background_nursery() as nursery:
        machine = Machine(nursery)
        machine.running += [await machine.begin() for _ in range(PROCESSES)]
        for action in actions:
            await machine.act(action)
        await machine.everything_ends()


@settings(max_examples=examples(300, daily=15))
@given(st.lists(ACTIONS, min_size=3, max_size=25))
def test_tasks_survive_what_happens_to_their_processes(actions: list[Action]) -> None:
    trio.run(_play, actions, clock=MockClock(autojump_threshold=0))
