"""`Tasks`: the tasks extension, for clients and servers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trio_mcp._checks import check_kind

if TYPE_CHECKING:
    from trio_mcp.client.client import Client
    from trio_mcp.extensions.tasks.client import ClientTasks, TasksClientSide
    from trio_mcp.extensions.tasks.options import TaskOptions
    from trio_mcp.extensions.tasks.proxied import TasksOnProxy
    from trio_mcp.extensions.tasks.server import TasksOnServer
    from trio_mcp.server.features.feature import MiddlewareFunction

__all__ = ["Tasks"]


class Tasks:
    """The tasks extension, ``io.modelcontextprotocol/tasks``: a server may turn a tool call into a task.

    For a server, ``Server("films", stores="films.db", extensions=[Tasks()])``: tools that declare it,
    ``@server.tool(task="optional")``, may run as tasks, which lie in the server's stores. Without ``stores``, they live
    in memory, as long as the server runs. For a client, ``Client(url, extensions=[Tasks()])``: `Client.call_tool` then
    waits for the result of the task, with the same result, callbacks and limits as without a task. To keep a task
    instead, see `Tasks.of`. For a proxy, ``ProxyServer(url, stores="proxy.db", extensions=[Tasks()])``: it hands the
    tasks of its upstream on to its clients. Servers create tasks only in the modern era (2026-07-28), and only from
    ``tools/call``.

    A task reports no progress, so a client's ``on_progress`` is not called once a call has become a task; watch the
    task instead (`TaskHandle.watch`) for the server's messages about it. One object may be given to any number of
    clients, servers and proxies.

    Args:
        options: The limits of a server's tasks.

    Raises:
        TypeError: If ``options`` is not a `TaskOptions`.
    """

    def __init__(self, options: TaskOptions | None = None) -> None:
        if options is not None:
            from trio_mcp.extensions.tasks.options import TaskOptions

            check_kind("options", options, kind=TaskOptions)
        self._options = options
        self._client_side: TasksClientSide | None = None
        self._server_side: TasksOnServer | None = None
        self._proxy_side: TasksOnProxy | None = None

    # Each side is imported only when it is used: a client does not need the server's side, nor a server the client's.

    @property
    def client_side(self) -> TasksClientSide:
        """The client's side of the extension."""
        if self._client_side is None:
            from trio_mcp.extensions.tasks.client import TasksClientSide

            self._client_side = TasksClientSide()
        return self._client_side

    @property
    def server_side(self) -> TasksOnServer:
        """The server's side of the extension."""
        if self._server_side is None:
            from trio_mcp.extensions.tasks.options import TaskOptions
            from trio_mcp.extensions.tasks.server import TasksOnServer

            self._server_side = TasksOnServer(TaskOptions() if self._options is None else self._options)
        return self._server_side

    @property
    def proxy_side(self) -> TasksOnProxy:
        """The part of a proxy."""
        if self._proxy_side is None:
            from trio_mcp.extensions.tasks.options import TaskOptions
            from trio_mcp.extensions.tasks.proxied import TasksOnProxy

            options = TaskOptions() if self._options is None else self._options
            self._proxy_side = TasksOnProxy(options, self.client_side)
        return self._proxy_side

    @property
    def middleware(self) -> MiddlewareFunction:
        """The middleware that turns calls into tasks; name it in ``Server(middleware=[…])`` to choose its position."""
        return self.server_side.middleware

    @staticmethod
    def of(client: Client) -> ClientTasks:
        """Return an object that starts tasks for a client, and finds them again by their ids.

        Raises:
            LocalProtocolError: If the client was made without this extension.
        """
        from trio_mcp.extensions.tasks.client import ClientTasks, followed_of

        return ClientTasks(followed_of(client))
