"""Work that several tasks wait for, and that continues when one of them leaves."""

from __future__ import annotations

import contextvars
from collections.abc import Awaitable, Callable

import trio

from trio_mcp._nursery import interruption_in
from trio_mcp.convert import another

__all__ = ["Flight"]


class Flight:
    """A piece of work that runs in a task of its own, on behalf of all tasks that wait for it.

    The work is cancelled when its last waiter leaves, except while a cancellation could lose a token.

    Args:
        scopes: The scopes that the login must have.

    Attributes:
        scopes: The scopes that the login must have.
        ended: Set when the work has ended.
        answered: Whether the last request for tokens got any response; set by the code that makes the request.
        fresh: Whether the work got new tokens itself; False if another process already had them.
    """

    # The task belongs to the run of Trio and not to a client, so that the waiting clients may close in any order, and
    # none has to wait for another.
    def __init__(self, scopes: frozenset[str] = frozenset()) -> None:
        self.scopes = scopes
        self.ended = trio.Event()
        self.answered = False
        self.fresh = False
        self._error: BaseException | None = None
        self._scope = trio.CancelScope()
        self._waiters = 0
        self._held = False

    def start(self, work: Callable[[Flight], Awaitable[None]], ended: Callable[[], object]) -> None:
        """Start the work in a task of its own.

        Args:
            work: Does the work; a failure is raised in every waiting task.
            ended: Called when the work has ended, before its waiters wake up.
        """
        # By default, a system task has the context of the run, in which the program's hooks, such as `show`, would not
        # see the context variables of the task that needs the login.
        trio.lowlevel.spawn_system_task(self._fly, work, ended, context=contextvars.copy_context())

    async def _fly(self, work: Callable[[Flight], Awaitable[None]], ended: Callable[[], object]) -> None:
        try:
            with self._scope:
                await work(self)
        except Exception as error:  # the error is raised in the waiters, not in the run of Trio
            self._error = error
        except BaseException as error:  # noqa: ASYNC103 - only Ctrl-C is kept
            # Ctrl-C may be raised in a task that does the work, too. It is passed on to the waiters, because an
            # exception from a system task would be an internal error of Trio.
            self._error = interruption_in(error)
            if self._error is None:
                raise
        finally:
            # `ended` is called first, because a waiter that wakes up and needs another flight must not find the one
            # that has just ended.
            ended()
            self.ended.set()

    @property
    def abandoned(self) -> bool:
        """Whether the work is being cancelled because its last waiter has left."""
        # The result is true even if the work has just reached a request for tokens, because that request is no longer
        # sent.
        return self._scope.cancel_called

    def hold(self) -> None:
        """Keep working until `release`, even if all waiters leave: a request for tokens is about to be sent."""
        # Once the server has the request, the old refresh token may be used up, and the new one is only in the
        # response.
        self._held = True

    def release(self) -> None:
        """Undo `hold`: the work ends when its last waiter leaves, or now if all waiters have left already."""
        self._held = False
        # The last waiter may have left since `hold`, and only this method can notice that.
        self._look()

    def _look(self) -> None:
        if not self._waiters and not self._held:
            self._scope.cancel("the last task that waited for this work stopped waiting")

    async def wait(self) -> None:
        """Wait until the work has ended.

        Raises:
            BaseException: A copy of the exception with which the work failed, Ctrl-C included.
        """
        self._waiters += 1
        try:
            await self.ended.wait()
        finally:
            self._waiters -= 1
            self._look()
        if self._error is not None:
            # Each waiter raises a copy, because a single exception raised in many tasks would collect the tracebacks of
            # all of them.
            raise another(self._error) from self._error.__cause__
