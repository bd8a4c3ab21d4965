"""Tasks on a server: which calls become tasks, and the methods about them (SEP-2663)."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any, cast

import attrs
import trio
from pydantic import ValidationError
from pydantic_core import to_json

from trio_mcp._log import logger
from trio_mcp.convert import brief
from trio_mcp.errors import McpError
from trio_mcp.extensions.tasks.context import TaskContext
from trio_mcp.extensions.tasks.engine import CHANGED, TaskEngine
from trio_mcp.extensions.tasks.errors import IDENTIFIER
from trio_mcp.extensions.tasks.options import TaskOptions
from trio_mcp.extensions.tasks.records import (
    answer_entry,
    asked_of,
    detailed,
    key_of,
    owner_of,
    to_wire,
)
from trio_mcp.extensions.tasks.running import TaskRun, refusing_clearly
from trio_mcp.schema.forms import Form
from trio_mcp.server.context import Context, ServedContext
from trio_mcp.server.extensions import ExtensionRun, ServerExtension
from trio_mcp.server.features.extension_parts import ExtensionMethod, ListenField
from trio_mcp.server.input.request_state import Question
from trio_mcp.server.outputs import text_result
from trio_mcp.server.task_policy import TaskMode, TaskPolicy
from trio_mcp.stores.contract import JournalEntry, StoredTask, StoreError
from trio_mcp.types.error_codes import INVALID_PARAMS
from trio_mcp.types.input_required import input_response_from_wire
from trio_mcp.types.tools import Tool
from trio_mcp.types.versions import LATEST, MODERN_REVISIONS

__all__ = ["TasksOnServer", "listened_ids", "responses_of", "task_methods", "unknown_task"]

MAX_ANSWERS = 100
"""The maximum number of responses in one ``tasks/update`` (arbitrary)."""

MAX_LISTENED = 1000
"""The maximum number of tasks that one request may listen for (arbitrary)."""


class TasksOnServer(ServerExtension):
    """The server's side of the extension."""

    identifier = IDENTIFIER
    details = ("task",)
    surrounds = ("tools/call",)

    def __init__(self, options: TaskOptions) -> None:
        self._options = options
        self.methods = task_methods(self._get, self._update, self._cancel)
        self.listen = (ListenField(name="taskIds", method=CHANGED, honor=self._honor, params=self._params),)

    def settings(self, revision: str) -> Mapping[str, Any] | None:
        # The tasks of 2025-11-25 were part of the core protocol, and work differently.
        return {} if revision in MODERN_REVISIONS else None

    def read_detail(self, name: str, value: Any, tool: Tool) -> TaskPolicy:
        policy = TaskPolicy(mode=cast(TaskMode, value)) if isinstance(value, str) else value
        if not isinstance(policy, TaskPolicy):
            raise TypeError(f"tool {tool.name!r}: task must be a TaskPolicy or a mode, got {value!r}")
        if policy.on_loss is None:
            reads = tool.annotations is not None and tool.annotations.read_only_hint is True
            policy = attrs.evolve(policy, on_loss="rerun" if reads else "fail")
        return policy

    @contextlib.asynccontextmanager
    async def lifespan(self, run: ExtensionRun) -> AsyncIterator[TaskEngine]:
        async with contextlib.AsyncExitStack() as stack:
            stores = run.stores
            if stores is None:
                from trio_mcp.stores.memory_stores import MemoryStores

                stores = await stack.enter_async_context(MemoryStores())
            engine = TaskEngine(run, stores, self._options)
            run.nursery.start_soon(engine.keep_leases)
            run.nursery.start_soon(engine.look)
            yield engine

    # --- calls ---------------------------------------------------------------------------------------------------

    def middleware(
        self, context: Context[Any], call_next: Callable[[], Awaitable[dict[str, Any]]]
    ) -> Awaitable[dict[str, Any]]:
        """Let a call become a task, if its tool and its client allow this."""
        assert isinstance(context, ServedContext)
        engine: TaskEngine | None = context.connection.states.get(self)
        # In a mounted server, the middleware of the mounting server has handled the call already.
        if engine is None or isinstance(context, TaskContext) or context.settings is not engine.host.server:
            return call_next()
        tool = engine.host.tool(context.params.get("name"))
        policy: TaskPolicy | None = None if tool is None else tool.declared.get("task")
        # A hidden tool must look like none.
        if tool is None or policy is None or (tool.filtered and not context.settings.shows(tool, context)):
            return call_next()
        if not context.rules.modern or IDENTIFIER not in context.client_extensions:
            return _refused(context) if policy.mode == "required" else call_next()
        return self._call(context, engine, policy)

    async def _call(self, context: ServedContext[Any], engine: TaskEngine, policy: TaskPolicy) -> dict[str, Any]:
        run = TaskRun(engine, policy)
        run.context = TaskContext.of_call(context, run)
        if policy.mode != "manual" and policy.after == 0:
            await run.create()  # before the function starts, because it may return at once
        engine.start(run)
        handed_over = False
        try:
            if policy.mode == "manual":
                await run.settled.wait()
            else:
                with trio.move_on_after(policy.after):
                    await run.settled.wait()
                await run.create()
            await trio.lowlevel.checkpoint_if_cancelled()
            handed_over = run.task is not None
        finally:
            # If the call is cancelled first, the client does not get the id. So the function is cancelled, and the
            # task, too, if it has been created.
            if not handed_over:
                run.cancel("cancelled")
                with trio.CancelScope(shield=True):
                    await run.settled.wait()
                    if run.task is not None:
                        await self._drop(engine, run)
        if run.task is not None:
            return {"resultType": "task", **to_wire(run.task, run.id, policy.poll)}
        context.failure = run.context.failure
        if isinstance(run.outcome, Exception):
            raise run.outcome
        assert run.outcome is not None
        return run.outcome

    async def _drop(self, engine: TaskEngine, run: TaskRun) -> None:
        """Cancel a task whose id no client knows."""
        try:
            await engine.cancel(run.key)
        except StoreError as exc:
            logger.warning("a task of the tool %r could not be cancelled: %s", run.name, exc)

    # --- the methods ---------------------------------------------------------------------------------------------

    async def _own(self, context: Context[Any], task_id: object) -> tuple[TaskEngine, StoredTask]:
        """Return the engine and a task, if it belongs to the caller.

        Raises:
            McpError: If the caller has no task with this id (-32602), or the token lacks a scope of the tool.
        """
        assert isinstance(context, ServedContext)
        engine: TaskEngine = self.state(context)
        key = key_of(task_id)
        task = None
        if key is not None:
            with refusing_clearly():
                task = await engine.stores.task(key)
        if task is None or task.owner != owner_of(context.principal):
            raise unknown_task()
        engine.host.check_scopes(engine.scopes_for(task), context)
        return engine, task

    async def _get(self, params: dict[str, Any], context: Context[Any]) -> dict[str, Any]:
        engine, task = await self._own(context, params.get("taskId"))
        run = engine.running.get(task.key)
        with refusing_clearly():
            # Otherwise a quick client would look once too often.
            if await (engine.end_orphan(task) if run is None else run.wait_stored()):
                task = await engine.stores.task(task.key) or task
        return detailed(task, params["taskId"], engine.poll_of(task))

    async def _update(self, params: dict[str, Any], context: Context[Any]) -> None:
        engine, task = await self._own(context, params.get("taskId"))
        responses = responses_of(params)

        def answer(task: StoredTask) -> tuple[StoredTask, list[JournalEntry]] | None:
            asked = asked_of(task) if task.status == "input_required" else {}
            # Responses to questions that are not open are ignored (Task Update Requests).
            known = {key: data for key, data in responses.items() if key in asked}
            if not known:
                return None
            entries = []
            for key, data in known.items():
                own, wire, question = asked.pop(key)
                _check_answer(key, wire, data)
                entries.append(answer_entry(key, own, Question(*question), data))
            if sum(len(data) for _, data in entries) > engine.options.max_size:
                raise McpError(
                    INVALID_PARAMS, f"the responses are too large: {engine.options.max_size} bytes is the limit"
                )
            if asked:
                return attrs.evolve(task, asked=to_json(asked)), entries
            return attrs.evolve(task, status="working", asked=b"", token="", begun=False), entries

        with refusing_clearly():
            await engine.swap(task.key, answer)

    async def _cancel(self, params: dict[str, Any], context: Context[Any]) -> None:
        engine, task = await self._own(context, params.get("taskId"))
        with refusing_clearly():
            await engine.cancel(task.key)

    # --- listening -----------------------------------------------------------------------------------------------

    async def _honor(self, value: Any, context: Context[Any]) -> tuple[list[str], Sequence[str]]:
        honored: list[str] = []
        for task_id in listened_ids(value):
            try:
                engine, task = await self._own(context, task_id)
            except McpError as exc:
                if exc.code != INVALID_PARAMS:
                    raise
                continue  # an unknown id is left out of the acknowledgement
            engine.watch(task_id, task)
            honored.append(task_id)
        await trio.lowlevel.checkpoint()
        return honored, honored

    def _params(self, task_id: str, context: Context[Any]) -> dict[str, Any] | None:
        engine: TaskEngine = self.state(context)
        return engine.params(task_id)


def unknown_task() -> McpError:
    """Return the error for an id that is not that of a task of the caller's."""
    return McpError(INVALID_PARAMS, "unknown task: it has expired, or no task has this id")


def responses_of(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the responses in the parameters of ``tasks/update``, by key.

    Raises:
        McpError: If they are missing or too many (-32602).
    """
    responses = params.get("inputResponses")
    if type(responses) is not dict:
        raise McpError(INVALID_PARAMS, "inputResponses is required and must be an object")
    if len(responses) > MAX_ANSWERS:
        raise McpError(INVALID_PARAMS, f"inputResponses has {len(responses)} entries; {MAX_ANSWERS} is the limit")
    return responses


def task_methods(
    get: Callable[..., Any], update: Callable[..., Any], cancel: Callable[..., Any]
) -> list[ExtensionMethod]:
    """Return the methods of the extension, which the functions handle."""
    functions = {"tasks/get": get, "tasks/update": update, "tasks/cancel": cancel}
    return [
        ExtensionMethod(name=name, function=function, revisions=MODERN_REVISIONS, name_parameter="taskId")
        for name, function in functions.items()
    ]


def listened_ids(value: Any) -> list[str]:
    """Return the ids in the field ``taskIds`` of a filter, each once.

    Raises:
        McpError: If the field is malformed, or has too many (-32602).
    """
    if type(value) is not list or not all(type(each) is str for each in value):
        raise McpError(INVALID_PARAMS, "params.notifications.taskIds must be an array of strings")
    if len(value) > MAX_LISTENED:
        raise McpError(INVALID_PARAMS, f"params.notifications.taskIds has more than {MAX_LISTENED} ids")
    return list(dict.fromkeys(value))


async def _refused(context: ServedContext[Any]) -> dict[str, Any]:
    """Refuse a call of a tool that only runs as a task.

    In the legacy era, which has no code for this, the result says that the call failed: a model sees that, and not an
    error.

    Raises:
        McpError: In the modern era, with -32021 (Capability Negotiation).
    """
    if context.rules.missing_extension_error:
        context.require_client_extension(IDENTIFIER)
    return text_result(
        f"the tool {context.params.get('name')!r} only runs as a task, which this revision of the protocol does not "
        f"have: use {LATEST} and declare {IDENTIFIER!r}",
        is_error=True,
    )


def _check_answer(key: str, wire: dict[str, Any], data: Any) -> None:
    """Refuse a response that does not fit its question, before anything is stored.

    Raises:
        McpError: If it does not fit (-32602).
    """
    try:
        input_response_from_wire(wire["method"], data)
    except ValidationError as exc:
        raise McpError(INVALID_PARAMS, f"the response to {key[:100]!r} is not valid: {brief(exc)}") from None
    params = wire.get("params") or {}
    schema = params.get("requestedSchema")
    if schema is not None and data.get("action") == "accept":
        problem = Form(schema).problem(data.get("content") or {})
        if problem is not None:
            raise McpError(INVALID_PARAMS, f"the response to {key[:100]!r} does not fit the form: {problem}")
