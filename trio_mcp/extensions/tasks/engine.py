"""The engine of tasks in one run of a server: holds the leases of tasks, and takes up those that are ready."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import attrs
import trio

from trio_mcp._log import logger
from trio_mcp.eras.server_negotiation import ClientDeclaration
from trio_mcp.extensions.tasks.context import NoClient, TaskContext
from trio_mcp.extensions.tasks.options import TaskOptions
from trio_mcp.extensions.tasks.records import Journal, StoredCall, detailed, error_bytes
from trio_mcp.extensions.tasks.running import CANCELLED, TaskRun, unknown_outcome
from trio_mcp.jsonrpc.events import IncomingRequest
from trio_mcp.jsonrpc.messages import Request
from trio_mcp.principal import Principal
from trio_mcp.server.task_policy import TaskPolicy
from trio_mcp.stores.contract import Claim, JournalEntry, StoredTask, StoreError, Stores

if TYPE_CHECKING:
    from trio_mcp.server.extensions import ExtensionRun

__all__ = ["TaskEngine"]

TOPIC = "tasks"
CHANGED = "notifications/tasks"


class TaskEngine:
    """The tasks of one run of a server.

    Args:
        host: The run of the server.
        stores: Where the tasks lie.
        options: The limits.

    Attributes:
        running: The runs that hold a lease, by the key of their task.
    """

    def __init__(self, host: ExtensionRun, stores: Stores, options: TaskOptions) -> None:
        self.host = host
        self.stores = stores
        self.options = options
        self.running: dict[str, TaskRun] = {}
        self._renewed = 0.0  # the time, on the clock of the stores, before the last renewal that was confirmed
        self._due = trio.Event()  # set while there are leases to renew
        self._confirming = trio.Lock()
        self._seen: dict[str, tuple[str, StoredTask | None]] = {}  # by key: what somebody listens for

    # --- runs ----------------------------------------------------------------------------------------------------

    def start(self, run: TaskRun) -> None:
        """Start a run of a function, in a task of the server's run."""
        self.host.nursery.start_soon(run.serve, name="a task")

    def holds(self, run: TaskRun, before: float) -> None:
        """Keep the lease of a run that has been given one.

        Args:
            run: The run.
            before: The time, on the clock of the stores, before the lease was asked for.
        """
        self.running[run.key] = run
        run.hold(self._stop_at(before))
        self._due.set()

    def ended(self, run: TaskRun) -> None:
        """Forget a run that has ended."""
        if self.running.pop(run.key, None) is not None and len(self.running) == self.options.max_running - 1:
            self.stores.wake(TOPIC)  # there is room for another task

    def changed(self, task: StoredTask) -> None:
        """Tell those who wait for a task that it has changed."""
        self.stores.wake(TOPIC)
        self._saw(task)

    def _stop_at(self, before: float) -> float:
        return trio.current_time() + before + self.options.lease * 2 / 3 - self.stores.clock()

    async def confirmed(self, run: TaskRun) -> None:
        """Wait until the lease of a run is certain; end the run if it is another's."""
        if trio.current_time() < run.scope.deadline:
            return
        async with self._confirming:
            await self._renew()
        await trio.lowlevel.checkpoint_if_cancelled()

    async def keep_leases(self) -> None:
        """Renew the leases that this process holds, for as long as it holds any."""
        while True:
            await self._due.wait()
            await trio.sleep(self.options.lease / 3)
            if not self.running:
                self._due = trio.Event()
                continue
            async with self._confirming:
                await self._renew()

    async def _renew(self) -> None:
        runs = dict(self.running)
        before = self.stores.clock()
        try:
            found = await self.stores.renew(
                {key: run.task.token for key, run in runs.items() if run.task is not None}, lease=self.options.lease
            )
        except StoreError as exc:
            logger.warning("the leases of %d tasks could not be renewed: %s", len(runs), exc)
            return
        for key, run in runs.items():
            task = found.get(key)
            if task is None:
                run.lose()
            else:
                run.hold(self._stop_at(before))
                if task.cancelling:
                    run.cancel("cancelled")

    # --- tasks of others -----------------------------------------------------------------------------------------

    async def look(self) -> None:
        """Take up tasks that are ready, or were lost, and see which of those that matter here have changed."""
        with self.stores.listen(TOPIC) as listener:
            while True:
                try:
                    await self._take()
                    await self._see()
                except StoreError as exc:
                    logger.warning("the store of the tasks can't be used: %s", exc)
                    await trio.sleep(1.0)
                await listener.woken()

    async def _take(self) -> None:
        room = self.options.max_running - len(self.running)
        tools = self.host.declaring("task")
        if room <= 0 or not tools:
            return
        before = self.stores.clock()
        for claim in await self.stores.claim_tasks(tools, lease=self.options.lease, most=min(room, 32)):
            try:
                await self._take_up(claim, before)
            except StoreError as exc:
                logger.warning("a task of the tool %r could not be taken up: %s", claim.task.tool, exc)

    async def _take_up(self, claim: Claim, before: float) -> None:
        task = claim.task
        tool = self.host.tool(task.tool)
        policy: TaskPolicy | None = None if tool is None else tool.declared.get("task")
        if policy is None:  # it was removed since
            return
        journal = Journal.read(await self.stores.journal(task.key))
        run = TaskRun(self, policy, task, journal)
        run.context = self._context(run, task)
        lost = claim.lost or task.begun
        if task.cancelling:
            await run.change(status="cancelled", token="", message=CANCELLED, cancelling=False)
        elif lost and (task.takeovers >= policy.max_takeovers or (task.begun and policy.on_loss == "fail")):
            error = unknown_outcome("the process that ran the tool has ended")
            await run.change(status="failed", token="", message=error.message, result=error_bytes(error))
        else:
            if lost:
                await run.change(takeovers=task.takeovers + 1)
            self.holds(run, before)
            self.start(run)

    def _context(self, run: TaskRun, task: StoredTask) -> TaskContext:
        import json

        call = StoredCall.from_bytes(task.body)
        shared = self.host.shared()
        nobody = NoClient(shared)
        params: dict[str, Any] = {"name": task.tool}
        if call.arguments is not None:
            params["arguments"] = call.arguments
        incoming = IncomingRequest(Request(0, "tools/call", params), running=True, answered=True, scope=run.scope)
        context = TaskContext(incoming, nobody, nobody, shared.states.get(self.host.server), run, elsewhere=True)
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

    def poll_of(self, task: StoredTask) -> float:
        """Return the seconds that clients should wait between two looks at a task."""
        tool = self.host.tool(task.tool)
        policy: TaskPolicy | None = None if tool is None else tool.declared.get("task")
        return TaskPolicy().poll if policy is None else policy.poll

    # --- changes -------------------------------------------------------------------------------------------------

    async def swap(
        self, key: str, change: Callable[[StoredTask], tuple[StoredTask, list[JournalEntry]] | None]
    ) -> StoredTask | None:
        """Change a task that this process need not hold.

        Args:
            key: The key of the task.
            change: ``(task) -> (task, entries) | None``: returns the task as it is to be, without a new version, and
                entries for its journal; None to change nothing. It may be called several times.

        Returns:
            The task as it is then; None if there is none.
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

    # --- listeners -----------------------------------------------------------------------------------------------

    def watch(self, key: str, task_id: str, task: StoredTask) -> None:
        """Follow the changes of a task that somebody is about to listen for."""
        self._seen[key] = task_id, task

    def params(self, key: str) -> dict[str, Any] | None:
        """Return the parameters of a notification about a task."""
        task_id, task = self._seen.get(key, ("", None))
        return None if task is None else detailed(task, task_id, self.poll_of(task))

    def _saw(self, task: StoredTask) -> None:
        seen = self._seen.get(task.key)
        if seen is not None and (seen[1] is None or seen[1].version < task.version):
            self._seen[task.key] = seen[0], task
            self.host.announce(CHANGED, task.key)

    async def _see(self) -> None:
        """Look for changes that other processes have made."""
        listened = set(self.host.listened(CHANGED))
        for key in [key for key in self._seen if key not in listened]:
            del self._seen[key]
        keys = listened & set(self._seen) | set(self.running)
        if not keys:
            return
        versions = await self.stores.versions(keys)
        for key in keys:
            run, (_, seen) = self.running.get(key), self._seen.get(key, ("", None))
            known = max(0 if run is None or run.task is None else run.task.version, 0 if seen is None else seen.version)
            if versions.get(key, math.inf if run is not None else 0) <= known:
                continue
            task = await self.stores.task(key)
            if task is None and run is not None:
                run.lose()
            elif task is not None:
                self._saw(task)
                if run is not None and task.cancelling:
                    run.cancel("cancelled")
