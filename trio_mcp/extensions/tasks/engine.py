"""The engine of tasks in one run of a server: it renews the leases of running tasks, and claims tasks."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

import attrs
import trio

from trio_mcp._log import logger
from trio_mcp.eras.server_negotiation import ClientDeclaration
from trio_mcp.errors import McpError
from trio_mcp.extensions.tasks.context import NoClient, TaskContext
from trio_mcp.extensions.tasks.errors import ENDED
from trio_mcp.extensions.tasks.options import TaskOptions
from trio_mcp.extensions.tasks.records import Journal, StoredCall, detailed, error_bytes, key_of
from trio_mcp.extensions.tasks.running import AS_CANCELLED, CANCELLED, PAUSE, TaskRun, unknown_outcome
from trio_mcp.jsonrpc.events import IncomingRequest
from trio_mcp.jsonrpc.messages import Request
from trio_mcp.principal import Principal
from trio_mcp.server.task_policy import TaskPolicy
from trio_mcp.stores.contract import Claim, JournalEntry, StaleWriter, StoredTask, StoreError, Stores
from trio_mcp.types.error_codes import INTERNAL_ERROR

if TYPE_CHECKING:
    from trio_mcp.server.extensions import ExtensionRun

__all__ = ["TaskEngine"]

TOPIC = "tasks"
CHANGED = "notifications/tasks"

SLICE = 32
"""The maximum number of tasks that are claimed at once (arbitrary)."""


class TaskEngine:
    """The tasks of one run of a server.

    Args:
        host: The run of the server.
        stores: The stores of the tasks.
        options: The limits.

    Attributes:
        running: The runs that hold a lease, by the key of their task.
        ending: Whether the server's run is ending.
    """

    def __init__(self, host: ExtensionRun, stores: Stores, options: TaskOptions) -> None:
        self.host = host
        self.stores = stores
        self.options = options
        self.running: dict[str, TaskRun] = {}
        self.ending = False
        self._due = trio.Event()  # set while there are leases to renew
        self._confirming = trio.Lock()
        self._seen: dict[str, StoredTask] = {}  # by id: the tasks that clients listen for, as last announced
        self._ids: dict[str, str] = {}  # those ids, by the keys of the tasks

    # --- runs ----------------------------------------------------------------------------------------------------

    def start(self, run: TaskRun) -> None:
        """Start a run of a function, in a task of the server's run."""
        self.host.nursery.start_soon(run.serve, name="a task")

    def holds(self, run: TaskRun, before: float) -> None:
        """Renew the lease of a run from now on.

        Args:
            run: The run.
            before: The time, on the clock of the stores, before the call that returned the lease.
        """
        self.running[run.key] = run
        run.hold(self._stop_at(before))
        self._due.set()

    def ended(self, run: TaskRun) -> None:
        """Forget a run that has ended."""
        if self.running.pop(run.key, None) is not None and len(self.running) == self.options.max_running - 1:
            self.stores.wake(TOPIC)  # there is room for another task

    def changed(self, task: StoredTask) -> None:
        """Announce that this process has changed a task."""
        self.stores.wake(TOPIC)
        self._saw(task)

    def _stop_at(self, before: float) -> float:
        return trio.current_time() + before + self.options.lease * 2 / 3 - self.stores.clock()

    async def confirmed(self, run: TaskRun) -> None:
        """Wait until this process certainly holds the lease of a run; otherwise cancel the run.

        Raises:
            StaleWriter: If the run was cancelled, but the caller can't be: in a thread, or in a shielded scope.
        """
        await trio.lowlevel.checkpoint()
        while trio.current_time() >= run.scope.deadline or run.scope.cancel_called:
            if not run.scope.cancel_called:
                async with self._confirming:
                    await self._renew()
            await trio.lowlevel.checkpoint()  # usually raises, if the run was cancelled
            if run.scope.cancel_called:
                run.cancel("late")
                raise StaleWriter("the run of the task has ended")

    async def keep_leases(self) -> None:
        """Renew the leases that this process holds, until the run of the server is cancelled."""
        pause = self.options.lease / 3
        try:
            while True:
                await self._due.wait()
                await trio.sleep(pause)
                if not self.running:
                    self._due = trio.Event()
                    continue
                async with self._confirming:
                    # A failed renewal is repeated soon, because a run is cancelled after two thirds of its lease.
                    pause = self.options.lease / (3 if await self._renew() else 15)
        finally:
            self.ending = True

    async def _renew(self) -> bool:
        """Renew all leases; return whether the store could be reached."""
        runs = dict(self.running)
        before = self.stores.clock()
        try:
            found = await self.stores.renew(
                {key: run.task.token for key, run in runs.items() if run.task is not None}, lease=self.options.lease
            )
        except StoreError as exc:
            logger.warning("the leases of %d tasks could not be renewed: %s", len(runs), exc)
            return False
        for key, run in runs.items():
            task = found.get(key)
            if task is None:
                run.lose()
            else:
                run.hold(self._stop_at(before))
                if task.cancelling:
                    run.cancel("cancelled")
        return True

    # --- tasks of others -----------------------------------------------------------------------------------------

    async def look(self) -> None:
        """Claim tasks that are ready or lost, and look for changes of tasks that run or are listened for here."""
        with self.stores.listen(TOPIC) as listener:
            away = False
            while True:
                try:
                    while await self._take():
                        pass
                    await self._see()
                    away = False
                except StoreError as exc:
                    if not away:  # once, not once a second
                        logger.warning("the store of the tasks can't be used: %s", exc)
                    away = True
                    await trio.sleep(PAUSE)
                    continue
                await listener.woken()

    async def _take(self) -> bool:
        """Claim some tasks and start them; return whether there may be more."""
        room = min(self.options.max_running - len(self.running), SLICE)
        tools = self.host.declaring("task")
        if room <= 0 or not tools:
            return False
        before = self.stores.clock()
        claims = await self.stores.claim_tasks(tools, lease=self.options.lease, most=room)
        for claim in claims:
            tool = self.host.tool(claim.task.tool)
            policy: TaskPolicy | None = None if tool is None else tool.declared.get("task")
            try:
                if policy is None:  # the tool was removed since
                    await self._release(claim.task)
                    continue
                await self._take_up(claim, policy, before)
            except StoreError as exc:
                logger.warning("a task of the tool %r was claimed, but could not be started: %s", claim.task.tool, exc)
            except Exception as exc:
                logger.error("a task of the tool %r can't be read", claim.task.tool, exc_info=exc)
                await self._give_up(claim.task, "the stored data of the task can't be read")
        return len(claims) == room

    async def _take_up(self, claim: Claim, policy: TaskPolicy, before: float) -> None:
        task = claim.task
        journal = Journal.read(await self.stores.journal(task.key))
        run = TaskRun(self, policy, task, journal)
        run.context = self._context(run, task)
        lost = claim.lost or task.begun
        if task.cancelling:
            await run.change(**AS_CANCELLED)
        elif lost and (task.takeovers >= policy.max_takeovers or (task.begun and policy.on_loss == "fail")):
            await self._give_up(task, unknown_outcome("the process that ran the tool has ended").message)
        elif journal.size > self.options.max_size:
            await self._give_up(task, f"the journal of the task has more than {self.options.max_size} bytes")
        else:
            if lost:
                await run.change(takeovers=task.takeovers + 1)
            self.holds(run, before)
            self.start(run)

    async def _release(self, task: StoredTask) -> None:
        """Give up the lease of a task that was just claimed, so that other processes may claim it."""

        def release(now: StoredTask) -> tuple[StoredTask, list[JournalEntry]] | None:
            return (attrs.evolve(now, token=""), []) if now.token == task.token else None

        await self.swap(task.key, release)

    async def _give_up(self, task: StoredTask, why: str) -> None:
        """End a task as failed that was just claimed."""
        error = error_bytes(McpError(INTERNAL_ERROR, why))

        def fail(now: StoredTask) -> tuple[StoredTask, list[JournalEntry]] | None:
            if now.token != task.token:
                return None
            return attrs.evolve(now, status="failed", token="", message=why, result=error, cancelling=False), []

        await self.swap(task.key, fail)

    async def end_orphan(self, task: StoredTask) -> bool:
        """End a task whose tool this server does not offer, if no process has claimed it for a whole lease.

        Returns:
            Whether tasks were claimed, so that the task may have changed.
        """
        if task.status != "working" or self._policy_of(task) is not None:
            return False
        if self.stores.now() < task.updated + self.options.lease:
            return False
        claims = await self.stores.claim_tasks([task.tool], lease=self.options.lease, most=SLICE)
        for claim in claims:
            if claim.lost or self.stores.now() < claim.task.updated + self.options.lease:
                # A process that offers the tool gets a whole lease to claim it.
                await self._release(claim.task)
            else:
                await self._give_up(claim.task, f"the server has no tool {task.tool!r} any more")
        return bool(claims)

    def _context(self, run: TaskRun, task: StoredTask) -> TaskContext:
        import json

        call = StoredCall.from_bytes(task.body)
        shared = self.host.shared()
        no_client = NoClient(shared)
        params: dict[str, Any] = {"name": task.tool}
        if call.arguments is not None:
            params["arguments"] = call.arguments
        incoming = IncomingRequest(Request(0, "tools/call", params), running=True, answered=True, scope=run.scope)
        context = TaskContext(incoming, no_client, no_client, shared.states.get(self.host.server), run, elsewhere=True)
        era = shared.served.identity.modern[call.revision]
        context.client = ClientDeclaration(era, call.client_info, call.capabilities)
        context.settings = self.host.server
        if task.owner:
            issuer, subject, client = json.loads(task.owner)
            context.principal = Principal(subject, issuer, client)
        return context

    def scopes_of(self, name: object) -> frozenset[str]:
        """Return the scopes that a tool needs."""
        tool = self.host.tool(name)
        return frozenset() if tool is None else tool.scopes

    def scopes_for(self, task: StoredTask) -> Collection[str]:
        """Return the scopes that a request about a task needs: its tool's, or those of the call if the tool is gone."""
        tool = self.host.tool(task.tool)
        return StoredCall.from_bytes(task.body).scopes if tool is None else tool.scopes

    def poll_of(self, task: StoredTask) -> float:
        """Return the seconds that clients should wait between two polls of a task."""
        policy = self._policy_of(task)
        return TaskPolicy().poll if policy is None else policy.poll

    def _policy_of(self, task: StoredTask) -> TaskPolicy | None:
        tool = self.host.tool(task.tool)
        return None if tool is None else tool.declared.get("task")

    # --- changes -------------------------------------------------------------------------------------------------

    async def swap(
        self, key: str, change: Callable[[StoredTask], tuple[StoredTask, list[JournalEntry]] | None]
    ) -> StoredTask | None:
        """Change a task without holding its lease: compare and swap, repeated until it succeeds.

        Args:
            key: The key of the task.
            change: ``(task) -> (task, entries) | None``: returns the changed task, without a new version, and entries
                for its journal; None to change nothing. It may be called several times.

        Returns:
            The task after the change; None if it is gone.
        """
        while True:
            task = await self.stores.task(key)
            wanted = None if task is None else change(task)
            if task is None or wanted is None:
                return task
            new, entries = wanted
            new = attrs.evolve(new, version=task.version + 1, updated=self.stores.now())
            if await self.stores.put_task(new, entries):
                self.changed(new)
                return new

    async def cancel(self, key: str) -> None:
        """Cancel a task, unless it has ended; a process that runs it then cancels the function and ends the task."""

        def cancel(task: StoredTask) -> tuple[StoredTask, list[JournalEntry]] | None:
            if task.status in ENDED or task.cancelling:
                return None
            if task.token:
                return attrs.evolve(task, cancelling=True), []
            return attrs.evolve(task, status="cancelled", asked=b"", message=CANCELLED), []

        await self.swap(key, cancel)
        if (run := self.running.get(key)) is not None:
            run.cancel("cancelled")

    # --- listeners -----------------------------------------------------------------------------------------------

    def watch(self, task_id: str, task: StoredTask) -> None:
        """Announce the changes of a task from now on, because a client is about to listen for it."""
        self._seen.setdefault(task_id, task)
        self._ids[task.key] = task_id

    def params(self, task_id: str) -> dict[str, Any] | None:
        """Return the parameters of a notification about a task."""
        task = self._seen.get(task_id)
        return None if task is None else detailed(task, task_id, self.poll_of(task))

    def _saw(self, task: StoredTask) -> None:
        task_id = self._ids.get(task.key)
        if task_id is None:
            return
        seen = self._seen.get(task_id)
        # If it is missing, no client listened for the task at the last poll, so the task may have changed since.
        if seen is None or seen.version < task.version:
            self._seen[task_id] = task
            self.host.announce(CHANGED, task_id)

    async def _see(self) -> None:
        """Read the changes that other processes have made."""
        listened = set(self.host.listened(CHANGED))
        for task_id in [each for each in self._seen if each not in listened]:
            del self._seen[task_id]
        self._ids = {key: task_id for task_id in listened if (key := key_of(task_id)) is not None}
        keys = {*self._ids, *self.running}
        if not keys:
            return
        versions = await self.stores.versions(keys)
        for key in keys:
            run, seen = self.running.get(key), self._seen.get(self._ids.get(key, ""))
            known = math.inf if run is None or run.task is None else run.task.version
            if key in self._ids:
                known = min(known, 0 if seen is None else seen.version)
            if versions.get(key, math.inf if run is not None else 0) <= known:
                continue
            task = await self.stores.task(key)
            if task is None and run is not None:
                run.lose()
            elif task is not None:
                self._saw(task)
                if run is not None and task.cancelling:
                    run.cancel("cancelled")
