"""The client's side of the tasks extension: it finishes calls that become tasks, and starts and finds tasks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Unpack
from weakref import WeakValueDictionary

from trio_mcp._checks import check_text
from trio_mcp._keywords import refuse_unknown
from trio_mcp.client.access import ClientAccess
from trio_mcp.client.extension import ClientExtension, Finisher
from trio_mcp.errors import RemoteProtocolError
from trio_mcp.extensions.tasks.errors import IDENTIFIER
from trio_mcp.extensions.tasks.following import FollowedTask, TaskCalls
from trio_mcp.extensions.tasks.handle import TaskHandle
from trio_mcp.extensions.tasks.wire import TaskState, final_result, read_created, read_state
from trio_mcp.jsonrpc.messages import Notification
from trio_mcp.session.calls import CallLimits, lowered
from trio_mcp.types.versions import MODERN_REVISIONS

if TYPE_CHECKING:
    from trio_mcp.client.client import Client

__all__ = ["ClientTasks", "TasksClientSide", "followed_of"]

NOTICE = "notifications/tasks"


class FollowedTasks:
    """The tasks of a client that are being followed.

    Args:
        client: The client.
        access: The parts of the client that extensions use.

    Attributes:
        calls: The requests and settings that the tasks share.
    """

    def __init__(self, client: Client, access: ClientAccess) -> None:
        self.calls = TaskCalls(client, access)
        # All handles of a task share its state, as long as one of them exists.
        self._followed: WeakValueDictionary[str, FollowedTask] = WeakValueDictionary()

    def __len__(self) -> int:
        return len(self._followed)

    def created(self, result: dict[str, Any], limits: CallLimits) -> FollowedTask:
        """Follow a task that the server has just created for a call.

        Raises:
            RemoteProtocolError: If the result is malformed.
        """
        seed = read_created(result)
        return self.follow(seed.task_id, limits, seed)

    def follow(self, task_id: str, limits: CallLimits, seed: TaskState | None = None) -> FollowedTask:
        """Follow a task; ``seed`` is the state with which it was created, or None.

        Raises:
            TypeError, ValueError: If the headers of the call can't be sent.
        """
        headers = lowered(limits.get("headers"))
        # A response to a request with headers of its own is only for the one who sent it.
        if self.calls.access.is_apart(limits):
            return FollowedTask(self.calls, task_id, seed, headers, apart=True)
        followed = self._followed.get(task_id)
        if followed is None:
            self._followed[task_id] = followed = FollowedTask(self.calls, task_id, seed)
        return followed

    async def finish(self, result: dict[str, Any], limits: CallLimits) -> dict[str, Any]:
        """Wait for the task that a call has become, and return its result; if the wait ends early, cancel the task."""
        followed = self.created(result, limits)
        try:
            state = await followed.outcome(limits)
        finally:
            # The caller never gets the id, so the result could never be fetched.
            followed.abandon()
        return final_result(state)

    def note(self, notification: Notification) -> None:
        """Record the state in a notification, if its task is being followed.

        Raises:
            RemoteProtocolError: If it is malformed.
        """
        params = notification.params or {}
        task_id = params.get("taskId")
        if not isinstance(task_id, str):
            raise RemoteProtocolError(f"the server sent a malformed {NOTICE!r} notification: it names no task")
        followed = self._followed.get(task_id)
        if followed is not None:  # otherwise the notification has arrived too late
            followed.note(read_state(params, task_id))


class ClientTasks:
    """The tasks of a client: see `Tasks.of`."""

    def __init__(self, followed: FollowedTasks) -> None:
        self._followed = followed

    async def start(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        meta: Mapping[str, Any] | None = None,
        **limits: Unpack[CallLimits],
    ) -> TaskHandle:
        """Call a tool, and return as soon as the server has created a task for the call.

        The server decides whether a call becomes a task. If it returns a result at once instead, the handle has that
        result, and no ``id``.

        Args:
            name: The tool's name.
            arguments: Its arguments, as in `Client.call_tool`.
            meta: Further entries for the request's ``_meta``, as in `Client.call_tool`.
            limits: As in `Client.call_tool`; they apply until the task has been created, except that ``headers`` go
                with each request about the task.

        Raises:
            UnknownTool: If the server has no such tool.
            McpError: If the server refuses the call for another reason.
            InputError: If the server asks for input before it creates the task, and the callback provides none.
            RemoteProtocolError: If the result is malformed.

        Further errors and cancellation as in `Client.call_tool`. If the call is cancelled after the server has created
        the task, and before its id has arrived, the id is lost, and the task may go on.
        """
        if limits:
            refuse_unknown(ClientTasks.start, limits, CallLimits)
        followed = self._followed
        result = await followed.calls.access.call_tool(name, arguments, meta=meta, **limits)
        if result.get("resultType") != "task":
            return TaskHandle(followed.calls, None, name, limits, result)
        return TaskHandle(followed.calls, followed.created(result, limits), name, limits)

    def task(self, task_id: str, *, tool: str | None = None, headers: Mapping[str, str] | None = None) -> TaskHandle:
        """Return a handle for a task whose id is known, for example from an earlier connection. Nothing is sent.

        Args:
            task_id: The task's id.
            tool: The name of the tool that was called, so that its result is checked against the tool's output schema;
                None to not check it.
            headers: HTTP header fields for each request about the task: see `CallLimits`.

        Raises:
            TypeError, ValueError: If the id is not a string, or is empty, or the headers can't be sent.
        """
        check_text("task_id", task_id)
        if tool is not None:
            check_text("tool", tool)
        limits = CallLimits(headers=headers)
        return TaskHandle(self._followed.calls, self._followed.follow(task_id, limits), tool, limits)


class TasksClientSide(ClientExtension):
    """The client's side of the extension."""

    identifier = IDENTIFIER
    # Section "Streamable HTTP: Routing Headers".
    methods = dict.fromkeys(("tasks/get", "tasks/update", "tasks/cancel"), "taskId")
    filters = {"taskIds": (NOTICE,)}  # noqa: RUF012 - as in the class that this one extends

    def __init__(self) -> None:
        self.notifications = {NOTICE: lambda client, notification: followed_of(client).note(notification)}
        self.result_types = {"task": Finisher(("tools/call",), _finish)}

    def settings(self, revision: str) -> dict[str, Any] | None:
        """Return no settings in the modern era; the extension does not exist in the legacy era."""
        return {} if revision in MODERN_REVISIONS else None

    def attach(self, client: Client, access: ClientAccess) -> FollowedTasks:
        """Return the registry of the tasks that a client follows, empty at first."""
        return FollowedTasks(client, access)


def followed_of(client: Client) -> FollowedTasks:
    """Return the tasks of a client that are being followed.

    Raises:
        LocalProtocolError: If the client was made without this extension.
    """
    followed: FollowedTasks = client.attached(IDENTIFIER)
    return followed


async def _finish(
    client: Client, method: str, params: dict[str, Any], result: dict[str, Any], limits: CallLimits
) -> dict[str, Any]:
    return await followed_of(client).finish(result, limits)
