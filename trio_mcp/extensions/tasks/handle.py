"""`TaskHandle`: a client's handle for a task of a server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from math import inf
from typing import TYPE_CHECKING, Any, Unpack, overload

import trio

from trio_mcp._keywords import refuse_unknown
from trio_mcp.client.tool_results import DataT, ToolResult, adapter_of
from trio_mcp.errors import LocalProtocolError, RequestTimeout
from trio_mcp.extensions.tasks.following import FollowedTask, TaskCalls
from trio_mcp.extensions.tasks.wire import TaskState, final_result
from trio_mcp.session.calls import USE_SESSION, CallLimits, Limit, Limits

if TYPE_CHECKING:
    from pydantic import TypeAdapter

__all__ = ["TaskHandle", "TaskWatch"]

ANY_TIME = CallLimits()


class TaskHandle:
    """A handle for a task of a server; returned by `ClientTasks.start` and `ClientTasks.task`.

    Every client that knows the task's `id` may read and change the task, so keep the id as you would keep a password.
    The ``repr`` does not show it.
    """

    def __init__(
        self,
        calls: TaskCalls,
        followed: FollowedTask | None,
        tool: str | None,
        limits: CallLimits,
        final: dict[str, Any] | None = None,
    ) -> None:
        self._calls = calls
        self._followed = followed
        self._tool = tool
        self._headers = limits.get("headers")
        self._final = final

    def __repr__(self) -> str:
        state = None if self._followed is None else self._followed.state
        return (
            f"<TaskHandle {'of a finished call' if self._followed is None else state.status if state else 'unknown'}>"
        )

    @property
    def id(self) -> str | None:
        """The task's id, to be saved for `ClientTasks.task`; None if the server returned a result at once."""
        return None if self._followed is None else self._followed.id

    async def get(self, *, timeout: Limit = USE_SESSION) -> TaskState:
        """Request the task's state from the server.

        Args:
            timeout: Seconds to wait for the response.

        Raises:
            McpError: If the server does not know the task: -32602.
            LocalProtocolError: If there is no task, because the server returned a result at once.
            RemoteProtocolError: If the state is malformed.

        Further errors and cancellation as in `BaseSession.send_request`.
        """
        if self._followed is None:
            raise LocalProtocolError("the server returned a result at once, so there is no task: call result()")
        return await self._followed.get(CallLimits(timeout=timeout))

    def watch(self) -> TaskWatch:
        """Iterate over the task's states: ``async for state in task.watch()``; the last one is final.

        The first one is the newest known state. States that follow each other quickly may be skipped. The client
        listens for changes if the server announces them, and otherwise polls. Only `result` answers the questions of
        the task. Without a task, because the server returned a result at once, there are no states.

        The loop raises the exceptions of `result`, except those about the outcome. It may be left or cancelled at any
        time, which does not affect the task.
        """
        return TaskWatch(self._followed)

    @overload
    async def result(
        self, result_type: type[DataT] | TypeAdapter[DataT] | None = ..., **limits: Unpack[CallLimits]
    ) -> ToolResult[DataT]: ...

    @overload
    async def result(self, result_type: Any, **limits: Unpack[CallLimits]) -> ToolResult[Any]: ...

    async def result(self, result_type: Any = None, **limits: Unpack[CallLimits]) -> ToolResult:
        """Wait until the task has ended, and return the tool's result; the client's `Answers` respond to its questions.

        Several Trio tasks may wait at the same time; each question is passed to the callbacks once. If a callback
        fails, or the wait is cancelled while it runs, the next call passes the question to it again.

        Args:
            result_type: The type of the value that the tool returns, as in `Client.call_tool`.
            limits: As in `Client.call_tool`, except that ``timeout`` applies to each request, ``total_timeout`` to the
                whole wait, and ``on_progress`` is not called: a task reports no progress. There can be no ``headers``:
                the task's requests have those of the call that created it, or of `ClientTasks.task`.

        Returns:
            The result, checked as in `Client.call_tool`; but not against the output schema, if the handle was made
            from an id without the tool's name.

        Raises:
            McpError: If the task failed with this error, or the server does not know the task (-32602).
            TaskCancelled: If the task was cancelled.
            TaskExpired: If the task has not ended when its time to live ends.
            InputError: If the task asks for input and the callback provides none.
            RemoteProtocolError: If the server breaks the protocol, or the result is invalid.
            RequestTimeout, TransportError: As in `BaseSession.send_request`. A poll that fails with a `TransportError`
                is repeated twice while the connection is open.

        If the call is cancelled, it ends at once, and the task goes on; to cancel the task, use `cancel`.
        """
        if limits:
            refuse_unknown(TaskHandle.result, limits, CallLimits)
            if limits.get("headers") is not None:
                raise ValueError("headers are given where a task is created, or to task(…), and not for its result")
        adapter = None if result_type is None else adapter_of(result_type)
        final = self._final
        if self._followed is not None:
            total = Limits.of(self._calls.client.session.options.calls, limits).total_timeout
            with trio.CancelScope(deadline=inf if total is None else trio.current_time() + total):
                final = final_result(await self._followed.outcome(limits))
            if final is None:
                assert total is not None
                raise RequestTimeout("tasks/get", total, "total_timeout")
        assert final is not None
        return await self._calls.access.read_tool_result(final, self._tool, adapter, self._headers)

    async def cancel(self, *, timeout: Limit = USE_SESSION) -> None:
        """Ask the server to cancel the task.

        The server decides whether and when the task ends; to find out, use `watch` or `result`. A task that has ended
        stays as it is.

        Args:
            timeout: Seconds to wait for the server's acknowledgement.

        Raises:
            McpError: If the server does not know the task, for example.

        Further errors and cancellation as in `BaseSession.send_request`.
        """
        if self._followed is None:
            await trio.lowlevel.checkpoint()
        else:
            await self._followed.cancel(CallLimits(timeout=timeout))


class TaskWatch(AsyncIterator[TaskState]):
    """The states of a task: see `TaskHandle.watch`."""

    def __init__(self, followed: FollowedTask | None) -> None:
        self._followed = followed
        self._last: tuple[object, ...] | None = None
        self._over = followed is None

    async def __anext__(self) -> TaskState:
        """Wait for the next state and return it. If the wait is cancelled, the next call returns the newest state."""
        await trio.lowlevel.checkpoint()
        followed = self._followed
        if followed is None or self._over:
            raise StopAsyncIteration
        while True:
            state = followed.state
            # The state with which a task is created lacks its outcome, so the last one has to be polled.
            if state is not None and (followed.whole or not state.is_final) and _told(state) != self._last:
                self._last, self._over = _told(state), state.is_final
                return state
            await followed.observe(followed.version, ANY_TIME)


def _told(state: TaskState) -> tuple[object, ...]:
    """Return the parts of a state in which it differs from the previous one."""
    return state.status, state.status_message, state.last_updated_at, state.ttl_ms, state.input_requests
