"""Tasks on a proxy: hands the tasks of the upstream on to the proxy's clients, under ids of its own.

Nothing runs on the proxy. It keeps the upstream's id of each task in its stores, so that every process of the proxy can
serve a request about the task; the status, the questions and the outcome are those of the upstream.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any, Final, cast

import attrs
import trio
from pydantic_core import from_json, to_json

from trio_mcp._log import logger
from trio_mcp.client.extension import ClientExtension
from trio_mcp.errors import McpError, RemoteProtocolError, TrioMcpError
from trio_mcp.extensions.tasks.client import ClientTasks, followed_of
from trio_mcp.extensions.tasks.engine import CHANGED
from trio_mcp.extensions.tasks.errors import IDENTIFIER
from trio_mcp.extensions.tasks.handle import TaskWatch
from trio_mcp.extensions.tasks.options import TaskOptions
from trio_mcp.extensions.tasks.records import key_of, new_id, owner_of
from trio_mcp.extensions.tasks.running import refusing_clearly
from trio_mcp.extensions.tasks.server import listened_ids, responses_of, task_methods, unknown_task
from trio_mcp.extensions.tasks.wire import TaskState, read_created, read_state
from trio_mcp.proxy.extension import ProxyExtension
from trio_mcp.proxy.translation import handed_on
from trio_mcp.proxy.upstream import Upstream
from trio_mcp.server.context import Context, ServedContext
from trio_mcp.server.extensions import ExtensionRun
from trio_mcp.server.features.extension_parts import ListenField
from trio_mcp.session.calls import CallLimits
from trio_mcp.stores.contract import StoredTask, Stores
from trio_mcp.types.error_codes import INTERNAL_ERROR, INVALID_PARAMS
from trio_mcp.types.versions import MODERN_REVISIONS

__all__ = ["TasksOnProxy"]

LONGEST_MS: Final = 30 * 24 * 3600 * 1000
"""Milliseconds for which a proxy keeps the id of a task at most (arbitrary): an upstream may keep its tasks forever."""
LINGER: Final = 5.0
"""For how many seconds a proxy follows a task before it looks whether a client still listens (arbitrary)."""


class TasksOnProxy(ProxyExtension):
    """The proxy's side of the extension."""

    identifier = IDENTIFIER
    surrounds = ("tools/call",)
    result_types = ("task",)

    def __init__(self, options: TaskOptions, client_side: ClientExtension) -> None:
        self.client_side = client_side
        self._options = options
        self.methods = task_methods(self._get, self._update, self._cancel)
        self.listen = (ListenField(name="taskIds", method=CHANGED, honor=self._honor, params=self._params),)

    def settings(self, revision: str) -> Mapping[str, Any] | None:
        return {} if revision in MODERN_REVISIONS else None

    @contextlib.asynccontextmanager
    async def lifespan(self, run: ExtensionRun) -> AsyncIterator[TasksOfProxy]:
        if run.stores is not None:
            yield TasksOfProxy(run, run.stores)
            return
        from trio_mcp.stores.memory_stores import MemoryStores

        async with MemoryStores() as stores:
            yield TasksOfProxy(run, stores)

    def _run(self, context: Context[Any]) -> TasksOfProxy:
        run: TasksOfProxy = self.state(context)
        return run

    # --- calls ---------------------------------------------------------------------------------------------------

    def middleware(
        self, context: Context[Any], call_next: Callable[[], Awaitable[dict[str, Any]]]
    ) -> Awaitable[dict[str, Any]]:
        """Give the client an id of the proxy's own, if the upstream has made a task of its call."""
        assert isinstance(context, ServedContext)
        if not context.rules.modern or IDENTIFIER not in context.client_extensions:
            return call_next()
        return self._call(context, call_next)

    async def _call(
        self, context: ServedContext[Any], call_next: Callable[[], Awaitable[dict[str, Any]]]
    ) -> dict[str, Any]:
        result = await call_next()
        if result.get("resultType") != "task":
            return result
        upstream: Upstream = context.state
        with _blaming(upstream):
            seed = read_created(result)
        task_id = new_id()
        handed_over = False
        try:
            await self._keep(context, task_id, seed)
            await trio.lowlevel.checkpoint_if_cancelled()
            handed_over = True
        finally:
            if not handed_over:  # no client knows of the task
                followed_of(upstream.client).follow(seed.task_id, CallLimits()).abandon()
        return {**result, "taskId": task_id, "ttlMs": _ttl(seed)}

    async def _keep(self, context: ServedContext[Any], task_id: str, seed: TaskState) -> None:
        stores = self._run(context).stores
        now = stores.now()
        body = to_json({"upstream": seed.task_id})
        if len(body) > self._options.max_size:
            raise McpError(INTERNAL_ERROR, "the upstream server has given a task an id that is too long to be kept")
        task = StoredTask(
            key=cast(str, key_of(task_id)),
            owner=owner_of(context.principal),
            tool="",  # no server may take it for a task of its own that is ready to run
            status="working",
            created=now,
            updated=now,
            expires=now + _ttl(seed) / 1000,
            body=body,
        )
        with refusing_clearly():
            await stores.add_task(task, limit=self._options.max_tasks)

    # --- the methods ---------------------------------------------------------------------------------------------

    async def _own(self, context: Context[Any], task_id: object) -> tuple[StoredTask, str]:
        """Return what is kept of a task of the caller's, and the upstream's id of it.

        Raises:
            McpError: If no task has this id (-32602).
        """
        stores = self._run(context).stores
        key = key_of(task_id)
        task = None
        if key is not None:
            with refusing_clearly():
                task = await stores.task(key)
        if task is None or task.owner != owner_of(context.principal):
            raise unknown_task()
        return task, from_json(task.body)["upstream"]

    async def _get(self, params: dict[str, Any], context: Context[Any]) -> dict[str, Any]:
        assert isinstance(context, ServedContext)
        upstream: Upstream = context.state
        task, theirs = await self._own(context, params.get("taskId"))
        result = await upstream.ask("tasks/get", {"taskId": theirs})
        with _blaming(upstream):
            state = read_state(result, theirs)
        await self._prolong(context, task, state)
        return _told(result, state, params["taskId"], context)

    async def _prolong(self, context: Context[Any], task: StoredTask, state: TaskState) -> None:
        """Keep the id for longer, if the upstream now keeps the task for longer."""
        expires = task.created + _ttl(state) / 1000
        if task.expires is not None and expires > task.expires:
            stores = self._run(context).stores
            with refusing_clearly():
                # If the task has changed meanwhile, another request has prolonged it.
                await stores.put_task(
                    attrs.evolve(task, expires=expires, updated=stores.now(), version=task.version + 1)
                )

    async def _update(self, params: dict[str, Any], context: Context[Any]) -> None:
        _, theirs = await self._own(context, params.get("taskId"))
        await _pass(context, "tasks/update", taskId=theirs, inputResponses=responses_of(params))

    async def _cancel(self, params: dict[str, Any], context: Context[Any]) -> None:
        _, theirs = await self._own(context, params.get("taskId"))
        await _pass(context, "tasks/cancel", taskId=theirs)

    # --- listening -----------------------------------------------------------------------------------------------

    async def _honor(self, value: Any, context: Context[Any]) -> tuple[list[str], Sequence[str]]:
        honored = {}
        for task_id in listened_ids(value):
            try:
                honored[task_id] = (await self._own(context, task_id))[1]
            except McpError as exc:
                if exc.code != INVALID_PARAMS:
                    raise
        await trio.lowlevel.checkpoint()
        for task_id, theirs in honored.items():
            self._run(context).follow(task_id, theirs, context.state)
        return list(honored), list(honored)

    def _params(self, task_id: str, context: Context[Any]) -> dict[str, Any] | None:
        assert isinstance(context, ServedContext)
        state = self._run(context).seen.get(task_id)
        if state is None:
            return None
        wire = state.to_wire()
        for each in ("resultType", "_meta"):  # they belong to the result of tasks/get
            wire.pop(each, None)
        try:
            return _told(wire, state, task_id, context)
        except McpError:
            return None  # a client that asks for the state learns what is wrong with it


class TasksOfProxy:
    """The tasks of one run of a proxy.

    Args:
        host: The run.
        stores: Where the ids of the tasks are kept.

    Attributes:
        stores: The same.
        seen: The newest state of each task that clients listen for, by the proxy's id; None before there is one.
    """

    def __init__(self, host: ExtensionRun, stores: Stores) -> None:
        self.stores = stores
        self.seen: dict[str, TaskState | None] = {}
        self._host = host

    def follow(self, task_id: str, theirs: str, upstream: Upstream) -> None:
        """Announce the changes of a task, until no client listens for them any more."""
        if task_id not in self.seen:
            self.seen[task_id] = None
            self._host.nursery.start_soon(self._follow, task_id, theirs, upstream)

    async def _follow(self, task_id: str, theirs: str, upstream: Upstream) -> None:
        watch: TaskWatch | None = None
        while True:
            with trio.move_on_after(LINGER):
                try:
                    if watch is None:
                        watch = ClientTasks(followed_of(await upstream.connected())).task(theirs).watch()
                    async for state in watch:
                        self.seen[task_id] = state
                        self._host.announce(CHANGED, task_id)
                except (TrioMcpError, OSError) as exc:
                    # Clients look for themselves now and then, and learn what is wrong.
                    logger.debug("a task of the upstream can't be followed: %s", type(exc).__name__)
                    watch = None
                await trio.sleep_forever()
            if task_id not in self._host.listened(CHANGED):
                del self.seen[task_id]
                return


async def _pass(context: Context[Any], method: str, **params: Any) -> None:
    upstream: Upstream = context.state
    await upstream.ask(method, params)


def _told(wire: dict[str, Any], state: TaskState, task_id: str, context: ServedContext[Any]) -> dict[str, Any]:
    """Return a state of the upstream's task as the proxy's clients see it.

    Args:
        wire: The state, as the upstream has sent it.
        state: The same.
        task_id: The proxy's id of the task.
        context: The context of the request.

    Raises:
        McpError: If a question is unknown or malformed (-32602).
    """
    upstream: Upstream = context.state
    spoken, revision = upstream.client.protocol_version, context.protocol_version
    asked = {}
    for key, each in (state.input_requests or {}).items():
        method, given = (each.get("method", ""), each.get("params")) if isinstance(each, dict) else ("", None)
        asked[key] = handed_on(context, method, given, spoken).wire(revision)
    return {**wire, "taskId": task_id, "ttlMs": _ttl(state), **({"inputRequests": asked} if asked else {})}


def _ttl(state: TaskState) -> float:
    """Return for how many milliseconds after its creation a task is kept."""
    return LONGEST_MS if state.ttl_ms is None else min(state.ttl_ms, LONGEST_MS)


@contextlib.contextmanager
def _blaming(upstream: Upstream) -> Iterator[None]:
    """Turn a fault in what the upstream has sent into an error response that names the upstream."""
    try:
        yield
    except RemoteProtocolError as exc:
        raise McpError(INTERNAL_ERROR, f"the upstream server {upstream.name!r}: {exc.message}") from None
