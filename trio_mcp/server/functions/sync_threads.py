"""The threads in which a server's sync functions run: each call takes a place, of which there is a limited number."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import trio

__all__ = ["SyncThreads"]


class SyncThreads:
    """Calls sync functions, each in a thread.

    A place is given back when its thread ends, even if nobody waits for that any more.

    Args:
        most: How many run at once, in one run of Trio; further ones wait.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        # One for each run of Trio: the token of a thread that outlives its run never comes back.
        self._limiter: trio.lowlevel.RunVar[trio.CapacityLimiter] = trio.lowlevel.RunVar("sync tools")

    @property
    def limiter(self) -> trio.CapacityLimiter:
        """The places in this run of Trio."""
        try:
            return self._limiter.get()
        except LookupError:
            limiter = trio.CapacityLimiter(self._most)
            self._limiter.set(limiter)
            return limiter

    async def call(self, function: Callable[..., Any], /, *arguments: Any, **named: Any) -> Any:
        """Call a function in a thread; what it returns is awaited here, if it is something to await.

        When cancelled, the thread is abandoned: it can't be stopped, but nobody has to wait for it.
        """
        # In a tuple, because Trio takes an awaitable for a mistake: here it comes from a sync decorator around an async
        # function.
        (value,) = await trio.to_thread.run_sync(
            lambda: (function(*arguments, **named),), abandon_on_cancel=True, limiter=self.limiter
        )
        return await value if inspect.isawaitable(value) else value
