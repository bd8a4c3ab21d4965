"""`Workers`: the tasks that run a session's handlers, each for one request after the other."""

from __future__ import annotations

import contextvars
from collections.abc import Awaitable, Callable
from typing import Any, Final

import trio

from trio_mcp.jsonrpc.events import IncomingRequest

__all__ = ["Workers"]

MAX_IDLE: Final = 64
"""How many tasks of a session may wait for a request (arbitrary): each takes about 2 KiB."""


class Workers:
    """Runs the handler of each request in a task and a cancel scope, which are used again for later requests.

    To start a task and to enter a cancel scope takes more than three times as long as to wake a task that waits in one.

    Args:
        serve: Runs the handler of a request, given its context, and sends the response.
        spawn: Starts a task in the session's nursery, under a name.

    Attributes:
        idle: The tasks that wait for a request, the last one first.
    """

    def __init__(
        self,
        serve: Callable[[Any], Awaitable[None]],
        spawn: Callable[[Callable[[], Awaitable[None]], str], None],
    ) -> None:
        self.serve = serve
        self.idle: list[Worker] = []
        self._spawn = spawn

    def start(self, context: object, incoming: IncomingRequest) -> None:
        """Run the handler of a request soon."""
        # Thanks to the name, Trio's instruments and tracebacks show which request a task serves.
        name = f"request {incoming.request.method}"
        if self.idle:
            self.idle.pop().wake(context, incoming, name)
        else:
            self._spawn(Worker(self, context, incoming).run, name)


class Worker:
    """A task that runs handlers.

    Args:
        workers: Where it waits for requests.
        context: The context of its first request.
        incoming: That request.
    """

    __slots__ = ("_context", "_incoming", "_scope", "_spent", "_task", "_workers")

    _task: trio.lowlevel.Task

    def __init__(self, workers: Workers, context: object, incoming: IncomingRequest) -> None:
        self._workers = workers
        self._scope = trio.CancelScope()
        self._spent = False  # whether the scope can't be used for another request
        self._take(context, incoming)

    def _take(self, context: object, incoming: IncomingRequest) -> None:
        self._context, self._incoming = context, incoming
        incoming.scope = self._scope  # now, because the request may be cancelled before the task runs

    def wake(self, context: object, incoming: IncomingRequest, name: str) -> None:
        """Run the handler of a request soon. The worker must be idle."""
        self._take(context, incoming)
        # As in a new task, the handler sees the context variables of the task that has received the request, and what
        # it sets itself ends with it.
        self._task.context = contextvars.copy_context()
        self._task.name = name
        trio.lowlevel.reschedule(self._task)

    async def run(self) -> None:
        """Run the handler of the first request, then those that `wake` gives; end if there are enough idle workers."""
        task = self._task = trio.lowlevel.current_task()
        idle, idle_context = self._workers.idle, contextvars.copy_context()
        while True:  # noqa: ASYNC913 - each round runs a handler, or waits for one
            with self._scope:
                while not self._spent:
                    if self._context is None:
                        if len(idle) >= MAX_IDLE:
                            return
                        idle.append(self)
                        task.context = idle_context  # so that what the last request has set is free
                        await trio.lowlevel.wait_task_rescheduled(self._abort)
                    await self._serve()
            self._scope, self._spent = trio.CancelScope(), False

    def _abort(self, _: object) -> trio.lowlevel.Abort:
        self._workers.idle.remove(self)
        return trio.lowlevel.Abort.SUCCEEDED

    async def _serve(self) -> None:
        context, incoming = self._context, self._incoming
        try:
            await self._workers.serve(context)
        finally:
            # A function that still has the context of the request must not cancel the next one with it.
            self._spent = incoming.lent
            incoming.scope = self._context = None
            del self._incoming
