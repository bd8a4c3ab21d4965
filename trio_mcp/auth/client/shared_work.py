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

    It is cancelled when its last waiter leaves, except while that could lose a token.

    Args:
        scopes: The scopes that the login must have.

    Attributes:
        scopes: The scopes that the login must have.
        ended: Set when the work has ended.
        answered: Whether the last request for tokens got any response; set by the code that makes the request.
        fresh: Whether the work got new tokens itself; False if another process already had them.
    """

    # The task belongs to the run of Trio: the clients that wait may close in any order, and none waits for another.
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
        except Exception as error:  # it is raised in the waiters, not in the run
            self._error = error
        except BaseException as error:  # noqa: ASYNC103 - only Ctrl-C is kept
            # Ctrl-C may be raised in a task of the work, too. It is passed on to the waiters: if it were raised in a
            # task of the run, it would be an internal error of Trio.
            self._error = interruption_in(error)
            if self._error is None:
                raise
        finally:
            # The order matters: a waiter that wakes up and needs more must not find the flight that has just ended.
            ended()
            self.ended.set()

    @property
    def abandoned(self) -> bool:
        """Whether the work is being cancelled because its last waiter has left."""
        # This is true even if the work has just reached a request for tokens: that request is no longer sent.
        return self._scope.cancel_called

    def hold(self) -> None:
        """Keep working until `release`, even if all waiters leave: a request for tokens is about to be sent."""
        # Once the server has the request, the old refresh token may be used up, and the new one is only in the
        # response.
        self._held = True

    def release(self) -> None:
        """Undo `hold`: end when the last waiter leaves, or now if it has left already."""
        self._held = False
        # The last waiter may have left since `hold`, and nothing else would notice that.
        self._look()

    def _look(self) -> None:
        if not self._waiters and not self._held:
            self._scope.cancel("its last waiter left")

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
            # One exception raised in many tasks would collect the tracebacks of them all.
            raise another(self._error) from self._error.__cause__
