"""`Tasks`, the extension for both sides."""

from __future__ import annotations

from typing import Any

from trio_mcp.extensions.tasks.records import IDENTIFIER

__all__ = ["Tasks"]


class Tasks:
    """Calls whose result is fetched later (SEP-2663), on a server or a client: ``Server(extensions=[Tasks()])``.

    Args:
        options: The limits of a server's tasks, a `TaskOptions`.
    """

    identifier = IDENTIFIER

    def __init__(self, options: Any = None) -> None:
        from trio_mcp.extensions.tasks.options import TaskOptions
        from trio_mcp.extensions.tasks.server import TasksOnServer

        self.server_side = TasksOnServer(TaskOptions() if options is None else options)

    @property
    def middleware(self) -> Any:
        """The middleware of a server that makes tasks of calls, to be given a place in ``Server(middleware=[…])``."""
        return self.server_side.middleware
